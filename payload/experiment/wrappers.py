"""Gymnasium's wrappers by name: what an experiment may say in `wrappers`."""

from collections.abc import Iterable
from typing import Any

from payload.errors import nearest
from payload.experiment.arguments import problem_of_arguments

Wrapper = str | dict[str, Any]
"""A name, or {name: {argument: value}}; a name with a colon is a class of one's own."""

ALLOWED = frozenset(
    {"AddRenderObservation", "AddWhiteNoise", "AtariPreprocessing", "ClipAction", "ClipReward"}
    | {"DelayObservation", "DiscretizeAction", "DiscretizeObservation", "DtypeObservation"}
    | {"FilterObservation", "FlattenObservation", "FrameStackObservation", "GrayscaleObservation"}
    | {"MaxAndSkipObservation", "ObstructView", "RescaleAction"}
    | {"RescaleObservation", "ReshapeObservation", "ResizeObservation", "StickyAction"}
    | {"TimeAwareObservation", "TimeLimit"}
)
_STATISTICS = "its statistics would not be in checkpoints"
_FUNCTION = "it takes a function; write a wrapper of your own: package:Class"
_ARRAYS = "the policy takes NumPy's arrays"
_SHOWN = "volley evaluate --video FILE or --watch shows episodes"
REFUSED = {
    "NormalizeObservation": f"{_STATISTICS}; set observation_filter: MeanStdFilter",
    "NormalizeReward": f"{_STATISTICS}; set reward_scale, a number",
    "TransformReward": f"{_FUNCTION}, or set reward_scale, a number",
    **dict.fromkeys(("TransformAction", "TransformObservation"), _FUNCTION),
    **dict.fromkeys(("ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch"), _ARRAYS),
    **dict.fromkeys(("HumanRendering", "RecordVideo", "RenderCollection"), _SHOWN),
    "RecordEpisodeStatistics": "returns and lengths are metrics already",
    "Autoreset": "an environment is always reset after its last step",
    **dict.fromkeys(("OrderEnforcing", "PassiveEnvChecker"), "environments are checked already"),
}
"""Gymnasium's other wrappers, and what stands for them."""


def named(wrapper: Wrapper) -> tuple[str, dict[str, Any]]:
    """Returns the name and the arguments of a wrapper."""
    if isinstance(wrapper, str):
        return wrapper, {}
    ((name, arguments),) = wrapper.items()
    return name, arguments or {}


def own_packages(wrappers: Iterable[Wrapper]) -> list[str]:
    """Returns the packages of the wrappers that are not Gymnasium's."""
    return [package for w in wrappers if (package := named(w)[0].rpartition(":")[0])]


def problem_of_wrappers(wrappers: list[Any]) -> str | None:
    """Returns what is wrong with the names, or with what stands beside them; None if nothing is."""
    return next(filter(None, map(_problem_of, wrappers)), None)


def _problem_of(wrapper: Any) -> str | None:
    is_entry = isinstance(wrapper, dict) and len(wrapper) == 1
    if not is_entry and not isinstance(wrapper, str):
        return f"config.wrappers: {wrapper!r}: must be a name, or {{name: {{argument: value}}}}"
    name, arguments = named(wrapper)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return f"config.wrappers: {wrapper!r}: must be a name, or {{name: {{argument: value}}}}"
    if name in REFUSED:
        return f"config.wrappers: {name}: {REFUSED[name]}"
    if ":" not in name and name not in ALLOWED:
        return (
            f"config.wrappers: {name}: no such wrapper of Gymnasium{nearest(name, ALLOWED)}; "
            f"allowed: package:Class, {', '.join(sorted(ALLOWED))}"
        )
    return problem_of_arguments(arguments, f"config.wrappers.{name}")
