"""Checks of the tags: Azure would refuse them resource by resource, in the middle of an `up`.

https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources#limitations
"""

from collections.abc import Iterator

from infra.config.stack_settings import Problem, StackSettings

OWN = ("project", "stack")
"""Tags that every resource has."""
MAX_TAGS = 50
MAX_NAME = 128
"""Of a storage account; other resources take names of 512 characters."""
MAX_VALUE = 256
NOT_IN_NAMES = frozenset("<>%&\\?/")


def check_tags(settings: StackSettings) -> Iterator[Problem]:
    if len(settings.tags) > MAX_TAGS - len(OWN):
        allowed = f"too many; Azure allows {MAX_TAGS - len(OWN)} besides {' and '.join(OWN)}"
        yield Problem("tags", len(settings.tags), allowed)
    names: set[str] = set()
    for name, value in settings.tags.items():
        if name.lower() in OWN:
            yield Problem("tags", name, "is volley's own; use another name")
        elif name.lower() in names:
            yield Problem("tags", name, "is there twice: Azure ignores the case of a name")
        elif not 0 < len(name) <= MAX_NAME or NOT_IN_NAMES & set(name):
            allowed = f"must have 1 to {MAX_NAME} characters, none of < > % & \\ ? /"
            yield Problem("tags", name, allowed)
        elif len(value) > MAX_VALUE:
            yield Problem("tags", name, f"has a value of more than {MAX_VALUE} characters")
        names.add(name.lower())
