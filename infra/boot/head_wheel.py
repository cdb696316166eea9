"""The package head/ as a wheel: the head's software, which a run command installs."""

import base64
import hashlib
import io
import zipfile
from pathlib import Path

import head
from infra.project_files import PROJECT
from payload import __version__
from payload.parcel import without_words

PACKAGE = Path(head.__file__).parent
UNITS = PACKAGE / "units"
JUPYTER_LOCK = PROJECT / "requirements" / "jupyter.txt"
NAME = "volley_head"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip file: the same code gives the same bytes."""


def wheel_name() -> str:
    return f"{NAME}-{__version__}-py3-none-any.whl"


def head_files() -> dict[str, bytes]:
    """Returns the package's files by their paths in the wheel, and JupyterLab's lock.

    Its code has no comments and docstrings: a run command has no room for them.
    """
    suffixes = (".py", ".service", ".timer")
    paths = [path for path in sorted(PACKAGE.rglob("[!.]*")) if path.suffix in suffixes]
    files = {f"head/{path.relative_to(PACKAGE).as_posix()}": _sent(path) for path in paths}
    return {**files, f"head/{JUPYTER_LOCK.name}": JUPYTER_LOCK.read_bytes()}


def head_wheel() -> bytes:
    """Returns the wheel.

    https://packaging.python.org/specifications/binary-distribution-format/
    """
    info = f"{NAME}-{__version__}.dist-info"
    files = {
        **head_files(),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {__version__}\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: volley\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    # Not compressed: the run command compresses all of it at once.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as wheel:
        for name, content in files.items():
            wheel.writestr(zipfile.ZipInfo(name, EPOCH), content)
    return packed.getvalue()


def _sent(path: Path) -> bytes:
    if path.suffix != ".py":
        return path.read_bytes()
    return without_words(path.read_text("utf-8")).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
