"""What Weights & Biases has kept of a run in offline mode; runs with its packages on the path.

Prints a JSON object: the records of the run, its history and its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER, RECORD_HEADER = 32_768, 7, 7
"""Bytes: the file has the format of LevelDB's logs, after a header."""


def records(data: bytes) -> Iterator[bytes]:
    at, record = HEADER, b""
    while at < len(data):
        if BLOCK - at % BLOCK < RECORD_HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        at += RECORD_HEADER
        record += data[at : at + length]
        at += length
        if kind in (1, 4):  # The whole of a record, or its last part.
            yield record
            record = b""


def main(file: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as protocol

    found: dict[str, Any] = {"history": [], "summary": {}}
    for data in records(file.read_bytes()):
        record = protocol.Record.FromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                run = record.run
                config = {each.key: json.loads(each.value_json) for each in run.config.update}
                names = {"project": run.project, "name": run.display_name, "id": run.run_id}
                found |= {**names, "config": config, "tags": list(run.tags), "notes": run.notes}
            case "history":
                values = {
                    each.key or each.nested_key[0]: json.loads(each.value_json)
                    for each in record.history.item
                }
                found["history"].append(values)
            case "summary":
                for each in record.summary.update:
                    found["summary"][each.key or each.nested_key[0]] = json.loads(each.value_json)
            case "exit":
                found["exit_code"] = record.exit.exit_code
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
