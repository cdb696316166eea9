"""`volley convert`: an older file of `rllib train`, written as a file of today."""

import argparse
import sys
from pathlib import Path

from payload.errors import UserError
from payload.experiment.convert import convert as converted


def convert(options: argparse.Namespace) -> int:
    """Prints or writes the file; returns the exit code.

    Raises:
        UserError: The file cannot be read, or the new one cannot be written or is there already.
    """
    target: Path | None = options.output
    if target is not None and target.exists() and not options.force:
        raise UserError(f"-o {target}: exists; --force overwrites it")
    beside = target is None or target.absolute().parent == options.file.absolute().parent
    result = converted(options.file, keep_paths=beside)
    if target is None:
        print(result.text, end="")
    else:
        try:
            target.write_text(result.text, "utf-8")
        except OSError as error:
            raise UserError(f"-o {target}: cannot be written: {error.strerror}") from None
    for line in result.left_out:
        print(f"volley: left out: {line}", file=sys.stderr)
    return 0
