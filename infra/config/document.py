"""Writes the stack's settings to Pulumi.yaml and docs/configuration.md; `make docs` runs it.

    python -m infra.config.document

infra/config/stack_settings.py is the source of every name, type, default and description.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from infra.config.stack_settings import StackSettings

ROOT = Path(__file__).parents[2]
TYPES = {str: "string", bool: "boolean", int: "integer", dict: "object", list: "array"}
"""Pulumi's names of types."""
BEGIN = "<!-- The settings, from infra/config/stack_settings.py by `make docs` -->"
END = "<!-- End of the settings -->"


def main() -> int:
    """Writes both files; returns 0."""
    for name, document in (("Pulumi.yaml", with_config), ("docs/configuration.md", with_table)):
        file = ROOT / name
        file.write_text(document(file.read_text()))
    return 0


def with_config(project: str) -> str:
    """Returns the text of a Pulumi.yaml with every setting in its last part, `config`."""
    before, _, _ = project.partition("\nconfig:\n")
    return "\n".join([before, "config:", *_config_lines()]) + "\n"


def with_table(document: str) -> str:
    """Returns a document with the table of all settings between its two markers."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", "", *_table_lines(), "", f"{END}{after}"])


def _config_lines() -> Iterator[str]:
    for key, field in _fields():
        kind = TYPES[type(field.default)]
        yield f"  {key}:"
        yield f"    type: {kind}"
        if kind == "array":
            yield from ("    items:", "      type: string")
        yield f"    default: {_in_yaml(field.default)}"
        yield f"    description: {_in_yaml(_description(field))}"


def _table_lines() -> Iterator[str]:
    yield "| setting | default | description |"
    yield "|---|---|---|"
    for key, field in _fields():
        default = field.default
        text = default if isinstance(default, str) else json.dumps(default)
        yield f"| `{key}` | {f'`{text}`' if text else ''} | {_description(field)} |"


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    for name, field in StackSettings.model_fields.items():
        yield field.alias or name, field


def _description(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _in_yaml(value: Any) -> str:
    """Returns a value as YAML in one line, with quotes only where YAML needs them."""
    if value == "":
        return '""'
    text = yaml.safe_dump(value, width=float("inf"), default_flow_style=True)
    return text.removesuffix("\n").removesuffix("\n...")


if __name__ == "__main__":
    sys.exit(main())
