"""The command `volley`, also python -m volley.

It imports almost nothing itself, so that Ctrl-C during the other imports prints one line too.
"""

import sys


def main() -> int:
    try:
        from volley.cli import main as command

        return command()
    except KeyboardInterrupt:
        print("\nvolley: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
