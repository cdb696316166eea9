"""YAML whose aliases cannot make a small file large, and whose nesting cannot end the process."""

from typing import Any

import yaml

MAX_VALUES = 100_000
"""An experiment or a conda environment has some hundred."""


class BoundedLoader(yaml.SafeLoader):
    """Refuses a document before its values are made; raises yaml.YAMLError."""

    def get_single_node(self) -> Any:
        try:
            node = super().get_single_node()
            _check_size(node)
        except RecursionError:
            raise yaml.YAMLError("its values are nested too deeply") from None
        return node


def _check_size(root: yaml.Node | None) -> None:
    """Raises yaml.YAMLError if a document without aliases would be too large, or endless."""
    sizes: dict[int, int] = {}
    above: set[int] = set()

    def size(node: Any) -> int:
        # Pairs of a mapping are tuples; an alias is the same node again.
        if not isinstance(node, yaml.CollectionNode | tuple):
            return 1
        if id(node) in above:
            raise yaml.YAMLError("an alias refers to what contains it")
        if id(node) not in sizes:
            above.add(id(node))
            children = node if isinstance(node, tuple) else node.value
            sizes[id(node)] = 1 + sum(map(size, children))
            above.remove(id(node))
        return sizes[id(node)]

    if size(root) > MAX_VALUES:
        raise yaml.YAMLError(f"with its aliases it has more than {MAX_VALUES:,} values")
