"""python -m payload train | tune | evaluate | ui | bench."""

from __future__ import annotations

import sys

from payload.cli import main

if __name__ == "__main__":
    sys.exit(main())
