"""`volley up` and `volley down`: infra.up.deploy in the folder of the Pulumi project."""

import argparse
import os
import shutil
import sys
from importlib.util import find_spec

from volley.arguments import PULUMI
from volley.errors import not_installed, refused
from volley.stack import INSTALL_PULUMI, project


def deploy(options: argparse.Namespace) -> int:
    """Runs `pulumi up` or `pulumi destroy`; returns its exit code.

    Raises:
        UserError: Pulumi or volley's program is not installed, or the folder has no project.
    """
    if find_spec("pulumi_azure_native") is None:
        raise not_installed("pulumi-azure-native", "infra")
    if not shutil.which("pulumi"):
        raise refused("the Pulumi CLI is not on the PATH", f"install it, {INSTALL_PULUMI}")
    os.chdir(project())
    # The Python of a project without a virtual environment of its own.
    os.environ.setdefault("PULUMI_PYTHON_CMD", sys.executable)
    from infra.up.deploy import main

    return main([PULUMI[options.verb], *options.pulumi])
