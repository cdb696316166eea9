"""MLflow's database of a cluster, from the results account."""

from pathlib import Path

from head.database_snapshot import DamagedError, check, unpack
from head.saved_database import NEWEST, PLAIN
from payload.errors import UserError
from volley.saved_results import SavedResults


def download_database(results: SavedResults, folder: Path) -> Path:
    """Downloads the newest state to a folder.

    Raises:
        UserError: There is none, it is damaged, or the account cannot be read.
    """
    received, database = folder / "received", folder / "mlflow.db"
    for name in (NEWEST, PLAIN):
        with received.open("wb") as file:
            exists = results.download(name, file)
        if exists:
            try:
                unpack(received, database)
                check(database)
            except DamagedError as error:
                raise UserError(f"the account {results.account.name}: {error}") from None
            return database
    raise UserError(f"the account {results.account.name} has no database of MLflow yet")
