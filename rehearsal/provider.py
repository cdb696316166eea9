"""The executable that Pulumi takes for azure-native: the provider, and the stage behind it."""

from __future__ import annotations

from rehearsal.azure.provider import serve
from rehearsal.backend import Stage

if __name__ == "__main__":
    serve(Stage())
