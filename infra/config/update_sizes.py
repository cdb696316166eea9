"""`make sizes`: updates infra/config/sizes.json from Azure's resource SKUs, by the Azure CLI.

https://learn.microsoft.com/cli/azure/vm#az-vm-list-skus
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from infra.config.resource_skus import machines
from infra.config.update_prices import location_of
from infra.config.vm_sizes import FILE, Machine, SizesFile
from payload.atomic_file import replace_text

LIST = (
    *("az", "vm", "list-skus", "--resource-type", "virtualMachines"),
    *("--all", "--output", "json", "--location"),
)
OF_A_LOCATION = {"zones", "restricted", "restricted_zones"}
"""What the file does not have: it differs by location and subscription."""


class NoListError(Exception):
    """The Azure CLI has listed no sizes."""


def main(arguments: list[str], file: Path = FILE) -> int:
    """Updates each size of the file that the location has.

    Returns 0, or 2 without a list; then the file is unchanged.
    """
    location = location_of("sizes", arguments)
    if location is None:
        return 2
    try:
        listed = _listed(location)
    except NoListError as error:
        print(f"sizes: {error}; {file.name} is unchanged", file=sys.stderr)
        return 2
    before = SizesFile.model_validate_json(file.read_text())
    missing = before.sizes.keys() - listed.keys()
    source = f"Azure's resource SKUs of {location}"
    if missing:
        source += f", and as before, which was {before.source}: {', '.join(sorted(missing))}"
    sizes = {
        size: _fields(listed[size]) if size in listed else fields
        for size, fields in before.sizes.items()
    }
    month = datetime.now(UTC).strftime("%Y-%m")
    replace_text(file, in_lines(SizesFile(as_of=month, source=source, sizes=sizes)))
    print(f"{file}: {len(sizes) - len(missing)} VM sizes of {location}; not there: {len(missing)}")
    return 0


def in_lines(sizes: SizesFile) -> str:
    """Returns the file's text, with a line for each size."""
    lines = [f"  {json.dumps(size)}: {json.dumps(has)}" for size, has in sizes.sizes.items()]
    head = f' "as_of": {json.dumps(sizes.as_of)},\n "source": {json.dumps(sizes.source)},\n'
    return "{\n" + head + ' "sizes": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _listed(location: str) -> dict[str, Machine]:
    try:
        done = subprocess.run([*LIST, location], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoListError("needs the Azure CLI, with az login") from None
    if done.returncode:
        raise NoListError((done.stderr.strip() or "az ended with an error").splitlines()[-1])
    listed = machines(json.loads(done.stdout))
    if not listed:
        raise NoListError(f"Azure lists no size in {location}")
    return dict(listed)


def _fields(machine: Machine) -> dict[str, str | int | float | bool]:
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in machine.model_dump(exclude_defaults=True).items()
        if name != "size" and name not in OF_A_LOCATION
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
