"""Tokens of this machine's managed identity, with the standard library only.

Boot scripts need them before the head's software arrives: this file is in customData as well, so a
change of it replaces every machine. It imports nothing of this package.
https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
"""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request

HOST = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://169.254.169.254")
"""The metadata service; azure-identity reads the same variable."""
REQUEST_S = 30.0
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def metadata(path: str, **query: str) -> bytes:
    """Returns an answer of the metadata service.

    Raises:
        OSError, HTTPException: The service refuses, or does not answer.
    """
    url = f"{HOST}/metadata/{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    with NO_PROXY.open(request, timeout=REQUEST_S) as answer:
        content: bytes = answer.read()
    return content


def token(resource: str) -> str:
    """Returns a token for a service of Azure.

    Raises:
        OSError, HTTPException, ValueError, LookupError: The metadata service refuses, or does not
            answer.
    """
    query = {"api-version": "2018-02-01", "resource": resource}
    query["client_id"] = os.environ["AZURE_CLIENT_ID"]
    return str(json.loads(metadata("identity/oauth2/token", **query))["access_token"])
