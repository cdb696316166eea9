"""What is wrong with an experiment's keys, all at once, in one line."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from payload.command_line import command_name
from payload.errors import UserError
from payload.experiment.old_names import old_names_of
from payload.experiment.settings import SETTINGS, Algorithm
from payload.experiment.written_numbers import DURATIONS, takes_duration, types_of

FATAL = ("env", "run")
"""Keys without which an experiment would be another one."""


@dataclass(frozen=True)
class Problem:
    """A key that cannot be used."""

    text: str
    section: str = ""
    name: str | None = None
    """Today's name in the section; None for what is translated into nothing."""


def problems_of(
    model: type[BaseModel],
    values: Mapping[str, Any],
    section: str,
    run: Algorithm = "IMPALA",
    given_names: Mapping[str, str] = MappingProxyType({}),
) -> list[Problem]:
    """Returns why a section of an experiment cannot be used, one for each of its keys."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
    else:
        return []
    problems: dict[str, Problem] = {}
    for each in errors:
        if not each["loc"] or each["type"] == "value_error":
            text = each["msg"].removeprefix("Value error, ")
            name = text.partition(":")[0].removeprefix(f"{section}.")
            name = str(each["loc"][0]) if each["loc"] else name
        else:
            # After the key, pydantic names a member of a union: a number or a schedule.
            name = str(each["loc"][0])
            text = _in_words(model, each, section, run, given_names)
        problems.setdefault(name, Problem(text, section, name))
    return list(problems.values())


def refusal(problems: Sequence[Problem], file: Path | None, notes: Sequence[str]) -> UserError:
    """Returns the error that tells all problems.

    Args:
        file: Where the experiment is, if it is a file that `volley convert` can translate.
        notes: A line for each key that is translated.
    """
    text = "; ".join(dict.fromkeys(problem.text for problem in problems))
    fatal = any(problem.name in FATAL for problem in problems)
    if file is None or fatal or (len(problems) == 1 and problems[0].name is not None):
        return UserError(text)
    others = f"; older names translated: {len(notes)}" if notes else ""
    return UserError(
        f"{text}{others}. Next: {command_name()} convert {file} -o NEW.yaml writes the file "
        "with today's names, without these"
    )


def _in_words(
    model: type[BaseModel],
    error: Any,
    section: str,
    run: Algorithm,
    given_names: Mapping[str, str],
) -> str:
    name = str(error["loc"][0])
    key = f"{section}.{name}" if section else name
    given, value, message = given_names.get(key, key), error["input"], error["msg"]
    if error["type"] == "extra_forbidden":
        return f"{given}: {_unknown(model, name, section, run)}"
    field = model.model_fields.get(name)
    if field is not None and {list, float} <= set(types_of(field.annotation)):
        return f"{given}: {value!r} is neither a number nor a list of [steps, value]"
    hint = f"; {DURATIONS}" if takes_duration(name) and isinstance(value, str) else ""
    return f"{given}: {value!r}: {message[0].lower()}{message[1:]}{hint}"


def _unknown(model: type[BaseModel], name: str, section: str, run: Algorithm) -> str:
    today = [field.alias or key for key, field in model.model_fields.items()]
    others = [other for other, settings in SETTINGS.items() if name in settings.model_fields]
    if section == "config" and others:
        return f"is a setting of {' and '.join(others)}; this experiment runs {run}"
    names = [*today, *old_names_of(section, name)]
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    nearest = " or ".join(", ".join(by_lower[match] for match in matches).rsplit(", ", 1))
    meant = f" (did you mean {nearest}?)" if matches else ""
    return f"unknown key{meant}; docs/algorithm.md lists all"
