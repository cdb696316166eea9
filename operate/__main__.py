"""python -m operate: the same as `volley`."""

from __future__ import annotations

import sys

from operate.cli import main

if __name__ == "__main__":
    sys.exit(main())
