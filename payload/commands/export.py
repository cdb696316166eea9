"""`volley export`: a checkpoint's policy as an ONNX model."""

import argparse
import sys

from payload.commands.evaluate import open_checkpoint, own_errors
from payload.errors import UserError, printable


def export(options: argparse.Namespace) -> int:
    """Writes the model and compares it with torch; returns the exit code, 1 if it differs.

    Raises:
        UserError: No checkpoint exists, or it cannot be exported.
    """
    if not options.onnx.absolute().parent.is_dir():
        raise UserError(f"--onnx {options.onnx}: the folder does not exist")
    checkpoint, experiment = open_checkpoint(options)
    from payload.run.export import TOLERANCE, export

    with own_errors(f"env: {experiment.env}"):
        parity, metadata = export(checkpoint, options.onnx)
    scores = f"{parity.scores} within {parity.difference:.1e}"
    if not parity.holds:
        print(
            f"volley: --onnx {options.onnx}: not written, because it differs from torch: "
            f"{parity.different_actions} of {parity.observations} actions are different, "
            f"{scores} (at most {TOLERANCE:g})",
            file=sys.stderr,
        )
        return 1
    for name, value in metadata.items():
        print(printable(f"{name:<16} {value}"))
    print(
        f"{options.onnx}: ONNX Runtime agrees with torch on {parity.observations} "
        f"observations: the same actions, {scores}"
    )
    return 0
