"""The part of Azure's CLI that azure-identity uses: `az account get-access-token`, for the owner.

https://learn.microsoft.com/cli/azure/account#az-account-get-access-token
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime

from rehearsal.azure.metadata.managed_identity import TOKEN_S, access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from rehearsal.azure.resources.roles import OWNER


def main(arguments: list[str]) -> int:
    if arguments[:2] != ["account", "get-access-token"]:
        print("az: the stand-in gives access tokens only", file=sys.stderr)
        return 2
    resource = arguments[arguments.index("--resource") + 1]
    now = int(time.time())
    token = {
        "accessToken": access_token(resource, "az", Identity(OWNER), now),
        "expiresOn": datetime.fromtimestamp(now + TOKEN_S).strftime("%Y-%m-%d %H:%M:%S.%f"),
        "expires_on": now + TOKEN_S,
        "subscription": SUBSCRIPTION,
        "tenant": Identity(OWNER).tenant_id,
        "tokenType": "Bearer",
    }
    print(json.dumps(token))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
