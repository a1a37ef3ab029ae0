"""Revisions of objects, and files of them: a JSON object per line.

``revision`` is the resourceVersion, which etcd counts over all kinds together, so sorting by it
restores the order in which the cluster changed, whichever watch was first.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

Manifest = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-wide objects is empty."""
Change = Literal["ADDED", "MODIFIED", "DELETED", "GAP"]
"""As a watch says it. A GAP stands where revisions were missed and the collection listed anew."""


@dataclass(frozen=True, slots=True)
class Record:
    """An object as it was from ``revision`` on; of a DELETED one, its last state."""

    seconds: float
    change: Change
    kind: str
    revision: int
    manifest: Manifest

    @property
    def key(self) -> Key:
        meta = self.manifest.get("metadata", {})
        return (meta.get("namespace", ""), meta.get("name", ""))


def in_order(records: Iterable[Record]) -> list[Record]:
    """Sort the records as the cluster changed, with times that never go back."""
    ordered = sorted(records, key=lambda record: record.revision)
    latest = 0.0
    for number, record in enumerate(ordered):
        latest = max(latest, record.seconds)
        if record.seconds < latest:
            ordered[number] = replace(record, seconds=latest)
    return ordered


def to_line(record: Record) -> str:
    return json.dumps(asdict(record), separators=(",", ":")) + "\n"


def read(path: Path) -> list[Record]:
    """Read a file that a Recorder wrote; a last line cut short is left out."""
    text = path.read_text()
    whole, _, _ = text.rpartition("\n")
    return [Record(**json.loads(line)) for line in whole.splitlines()]
