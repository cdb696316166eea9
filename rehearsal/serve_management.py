"""Serves management.azure.com with real machines, which change while no `pulumi up` runs.

python -m rehearsal.serve_management STATE_FILE FOLDER ADDRESS PORT
"""

from __future__ import annotations

import sys

from rehearsal.azure.management.management_service import main
from rehearsal.backend import Backend

if __name__ == "__main__":
    main(Backend, sys.argv[1:])
