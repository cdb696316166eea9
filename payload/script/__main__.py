"""python -m payload.script ERROR FILE [ARGUMENT ...]: a script's own process.

The script finds what `python FILE ARGUMENT ...` would give it. After its traceback, a name that has
a successor today gets one more line. ERROR is a file to write the script's own exception to, in one
line.
"""

import atexit
import ctypes
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType

from payload.environments.retired_names import successor
from payload.errors import first_line

Trace = TracebackType | None
PR_SET_PDEATHSIG = 1


def main(error_file: Path, script: Path) -> None:
    def report(kind: type[BaseException], error: BaseException, trace: Trace) -> None:
        # Python's own traceback begins in the script.
        while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace or error.__traceback__)
        error_file.write_text(first_line(error))
        leave_mlflow_runs()
        if line := successor(error):
            print(f"volley: {line}", file=sys.stderr)

    end_with_parent()
    sys.argv = sys.argv[2:]
    sys.path[0] = str(script.parent)
    sys.excepthook = report
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):  # Ray turns SIGTERM into one, too.
            leave_mlflow_runs()
        raise


def end_with_parent() -> None:
    """Ends this process if its parent is killed, which would start the script again (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def leave_mlflow_runs() -> None:
    """Keeps MLflow from ending open runs as FINISHED at exit: the parent knows their true end."""
    if fluent := sys.modules.get("mlflow.tracking.fluent"):
        atexit.unregister(fluent._safe_end_run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
