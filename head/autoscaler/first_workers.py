"""head.autoscaler.first_workers LEAST: requests the first workers while the head still boots.

Ray's autoscaler starts minutes later, with the head's Python environment; by then the workers are
booting. This runs on the system's Python, which has the standard library only.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from ..cluster_settings import ClusterSettings, read_settings
from ..files import replace
from ..paths import FIRST_WORKERS, WORKERS

TOKEN = "http://169.254.169.254/metadata/identity/oauth2/token"
"""https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token"""
COMPUTE_VERSION = "2024-07-01"
RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 3.0
TIMEOUT_S = 30.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Requests to the metadata service bypass any proxy."""


def main(least: int) -> int:
    settings = read_settings()
    assert settings is not None, "the run command writes the settings first"
    end = time.monotonic() + RETRY_FOR_S
    # Once the autoscaler has written its report, it makes the requests itself.
    while not WORKERS.exists():
        try:
            request_workers(settings, least)
        except (OSError, HTTPException, ValueError, LookupError) as error:
            print(_reason(error), flush=True)
        else:
            return 0
        if time.monotonic() > end:
            return 1
        time.sleep(PAUSE_S)
    return 0


def request_workers(settings: ClusterSettings, least: int) -> None:
    """Requests the workers unless some were requested before; leaves the operation's URL in a file.

    Raises:
        OSError, HTTPException, ValueError, LookupError: Azure refused, or did not answer.
    """
    query = urlencode({"api-version": COMPUTE_VERSION})
    url = f"{settings.endpoint}{settings.scale_set}?{query}"
    headers = {"Authorization": f"Bearer {_token(settings.endpoint)}"}
    with urllib.request.urlopen(_request("GET", url, headers), timeout=TIMEOUT_S) as response:
        scale_set = json.load(response)
    if scale_set["sku"]["capacity"] > 0:
        return
    body = {"sku": {**scale_set["sku"], "capacity": least}}
    if scale_set.get("etag"):
        headers["If-Match"] = scale_set["etag"]
    with urllib.request.urlopen(_request("PATCH", url, headers, body), timeout=TIMEOUT_S) as answer:
        operation = answer.headers.get("Azure-AsyncOperation", "")
    print(f"requested {least} workers from Azure", flush=True)
    replace(FIRST_WORKERS, operation.encode())


def take_operation() -> str:
    """Returns the operation's URL once; "" if there is none."""
    try:
        operation = FIRST_WORKERS.read_text()
        FIRST_WORKERS.unlink()
    except OSError:
        return ""
    return operation


def _token(endpoint: str) -> str:
    client = os.environ["AZURE_CLIENT_ID"]
    query = {"api-version": "2018-02-01", "resource": endpoint, "client_id": client}
    request = urllib.request.Request(f"{TOKEN}?{urlencode(query)}", headers={"Metadata": "true"})
    with DIRECT.open(request, timeout=TIMEOUT_S) as response:
        return str(json.load(response)["access_token"])


def _request(
    method: str, url: str, headers: Mapping[str, str], body: dict[str, Any] | None = None
) -> urllib.request.Request:
    data = None if body is None else json.dumps(body).encode()
    headers = {**headers, "Content-Type": "application/json"}
    return urllib.request.Request(url, data, headers, method=method)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        content = error.read().decode(errors="replace")
        return f"Azure answered {error.code}: {content[:300]}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
