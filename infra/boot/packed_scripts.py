"""The machines' Python scripts as customData carries them: an archive, since they would not fit.

`make pack` makes the archives that are out of date. Another liblzma gives other bytes for the same
scripts, and changed customData replaces every machine: so what is sent is what lies in packed/.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from payload.parcel.experiment_files import archive

FILES = Path(__file__).parent / "files"
PACKED = Path(__file__).parent / "packed"
SCRIPTS = "usr/local/lib/volley"


def main() -> None:
    for root in sorted(FILES.iterdir()):
        if contents(root):
            packed_path(root).write_bytes(packed_scripts(root))


def packed_path(root: Path) -> Path:
    return PACKED / f"{root.name}.tar.xz"


def packed_scripts(root: Path) -> bytes:
    """Returns the archive; one that is older than its scripts is made by the liblzma of here."""
    path, packed = packed_path(root), archive(contents(root))
    if path.exists() and lzma.decompress(path.read_bytes()) == packed:
        return path.read_bytes()
    return lzma.compress(packed, preset=9)


def contents(root: Path) -> dict[str, bytes]:
    """Returns the Python scripts of common/, head/ or worker/, by their path on the machine."""
    scripts = sorted((root / SCRIPTS).glob("[!.]*.py"))
    return {f"{SCRIPTS}/{script.name}": script.read_bytes() for script in scripts}


if __name__ == "__main__":
    main()
