"""The executable that Pulumi takes for azure-native: the provider, and the stage behind it."""

from __future__ import annotations

from tests.azure.provider import serve
from tests.rehearsal.stage import Stage

if __name__ == "__main__":
    serve(Stage())
