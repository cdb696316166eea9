"""head.identity save | restore KEY: saves all results now, or restores an experiment's runs."""

import sys

from .client import IdentityError, save
from .restored_runs import restore


def main(verb: str, *keys: str) -> int:
    try:
        if verb == "save":
            reason = save()
        else:
            restore(*keys)
            reason = ""
    except IdentityError as error:
        reason = str(error)
    if reason:
        print(f"{' '.join([verb, *keys])}: {reason}", file=sys.stderr)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
