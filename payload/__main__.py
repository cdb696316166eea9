"""python -m payload train | tune | evaluate, on a cluster's head."""

from __future__ import annotations

import sys

from payload.cli import main

if __name__ == "__main__":
    sys.exit(main())
