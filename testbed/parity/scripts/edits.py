"""Edits of manifests: one value at one place, or the removal of a field."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from testbed.scenario.manifests import Manifest

Values: TypeAlias = Mapping[str, Sequence[Any]]
"""By place, values that stand there in one edit each."""
DROP: Final = object()
"""The value that removes a field."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One value at one place of a manifest, such as ``spec/tasks/0/replicas``."""

    place: str
    value: Any

    def __str__(self) -> str:
        return f"{self.place} = {'nothing' if self.value is DROP else repr(self.value)[:60]}"

    def apply(self, manifest: Manifest) -> Manifest:
        """Return a copy of the manifest with the value at its place."""
        edited = deepcopy(manifest)
        *above, last = (int(part) if part.isdigit() else part for part in self.place.split("/"))
        parent: Any = edited
        for part in above:
            parent = parent[part] if isinstance(part, int) else parent.setdefault(part, {})
        if self.value is DROP:
            del parent[last]
        elif isinstance(parent, list) and last == len(parent):
            parent.append(deepcopy(self.value))
        else:
            parent[last] = deepcopy(self.value)
        return edited


def table(values: Values) -> tuple[Edit, ...]:
    """Return an edit for each value of each place."""
    return tuple(_edits(values))


def _edits(values: Values) -> Iterator[Edit]:
    for place, options in values.items():
        for value in options:
            yield Edit(place, value)
