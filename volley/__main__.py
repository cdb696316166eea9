"""The command `volley`, also python -m volley.

It imports next to nothing itself: so Ctrl-C while Python imports the rest prints one line too.
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
