"""Whether the head should install security updates now; security-updates.service asks every 10 min.

Exit code 0: yes. 1: not now, or the setting is off, or it cannot be told.
"""

import sys
import time

from .cluster_settings import read_settings
from .paths import UPDATED
from .queue.store import Store

EVERY_S = 86_400.0


def main() -> int:
    settings = read_settings()
    if settings is None or not settings.security_updates:
        return 1
    if UPDATED.exists() and 0 <= time.time() - UPDATED.stat().st_mtime < EVERY_S:
        return 1
    if live := [record.name for record in Store().records() if record.live]:
        print(f"security updates wait for {', '.join(live)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
