"""Tokens for the identities that are assigned to a machine.

https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

from rehearsal.azure.azure_errors import RefusedError
from rehearsal.azure.http_server import Answer
from rehearsal.azure.metadata.metadata_documents import Query
from rehearsal.azure.metadata.metadata_state import Identity, Instance

TOKEN_S = 24 * 3600
NOT_READY = (
    Answer(410, {"error": "gone", "error_description": "IMDS is available again in 70 seconds"}),
    Answer(429, {"error": "too_many_requests", "error_description": "Too many requests"}),
)
"""The first answers to a machine that has booted; clients must retry."""


def token(to: Instance, query: Query, now: int) -> Answer:
    """Returns an access token for an identity that is assigned to the machine.

    The token is not signed: a rehearsal only checks whom it is for.
    """
    resource = query.get("resource")
    if not resource:
        return _refused("Required audience parameter not specified")
    matching = {
        client_id: identity
        for client_id, identity in to.identities.items()
        if query.get("client_id", client_id) == client_id
        and query.get("object_id", identity.principal_id) == identity.principal_id
        and query.get("msi_res_id", identity.resource_id) == identity.resource_id
    }
    if not matching:
        return _refused("Identity not found")
    if len(matching) > 1:
        return _refused(
            "Multiple user assigned identities exist, please specify the clientId / resourceId "
            "of the identity in the token request"
        )
    ((client_id, identity),) = matching.items()
    body = {
        "access_token": access_token(resource, client_id, identity, now),
        "client_id": client_id,
        "expires_in": str(TOKEN_S),
        "expires_on": str(now + TOKEN_S),
        "ext_expires_in": str(TOKEN_S),
        "not_before": str(now),
        "resource": resource,
        "token_type": "Bearer",
    }
    return Answer(200, body)


def access_token(resource: str, client_id: str, identity: Identity, now: int) -> str:
    """Returns an unsigned JWT for `resource`, valid for a day from `now`."""
    claims: dict[str, str | int] = {
        "aud": resource,
        "iss": f"https://sts.windows.net/{identity.tenant_id}/",
        "iat": now,
        "nbf": now,
        "exp": now + TOKEN_S,
        "appid": client_id,
        "oid": identity.principal_id,
        "sub": identity.principal_id,
        "tid": identity.tenant_id,
    }
    return f"{_base64({'typ': 'JWT', 'alg': 'none'})}.{_base64(claims)}."


def claims(authorization: str) -> dict[str, Any]:
    """Returns the claims of a bearer token; an empty dictionary for any other header."""
    try:
        text = authorization.removeprefix("Bearer ").split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(f"{text}=="))
    except (ValueError, LookupError):
        return {}
    return content if isinstance(content, dict) else {}


def principal_of(authorization: str, audience: str) -> str:
    """Returns whose bearer token it is.

    Raises:
        RefusedError: It is not a valid one for the audience.
    """
    token = claims(authorization)
    if str(token.get("aud", "")).rstrip("/") != audience or token.get("exp", 0) < time.time():
        raise RefusedError(401, "InvalidAuthenticationToken", "The access token is invalid.")
    return str(token["oid"])


def _refused(description: str) -> Answer:
    return Answer(400, {"error": "invalid_request", "error_description": description})


def _base64(of: Mapping[str, str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(of).encode()).rstrip(b"=").decode()
