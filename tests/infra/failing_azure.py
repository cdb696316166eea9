"""Azure's stand-in, but resources of one type do not come up; run as the engine's provider."""

from __future__ import annotations

import os
from pathlib import Path

from rehearsal.azure.provider import serve
from rehearsal.azure.resource_kinds import Properties, short_type
from rehearsal.azure.resources import Azure, HalfMadeError


class FailingAzure(Azure):
    """Makes everything; what is of a type that fails is told not to have come up."""

    def __init__(self, file: Path, failing: str = "") -> None:
        super().__init__(file)
        self.failing = failing
        """A short type, "NatGateway"."""

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        added = super().create(token, resource_id, inputs)
        if short_type(token) == self.failing:
            raise HalfMadeError(f"{resource_id} was made but did not come up", added)
        return added


if __name__ == "__main__":
    serve(FailingAzure(Path(os.environ["AZURE_FILE"]), os.environ.get("AZURE_FAILING", "")))
