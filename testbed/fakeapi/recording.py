"""Record every revision that a fake API server stores, for the observer of histories."""

from collections.abc import Callable, Mapping
from functools import partial

from testbed.fakeapi.store import Change, Store
from testbed.history.records import Change as Word
from testbed.history.records import Record


def recorded(
    store: Store, kinds: Mapping[str, str], seconds: Callable[[], float] = lambda: 0.0
) -> list[Record]:
    """Return a list that grows with the store; what is stored already counts as added.

    ``kinds`` maps resource paths to kinds.
    """
    records: list[Record] = []

    def note(kind: str, change: Change) -> None:
        obj = change.after or change.before or {}
        word: Word = "DELETED" if change.after is None else "MODIFIED" if change.before else "ADDED"
        records.append(Record(round(seconds(), 3), word, kind, change.version, obj))

    for resource, kind in kinds.items():
        collection = store.collection(resource)
        for obj in collection.objects.values():
            note(kind, Change(int(obj["metadata"]["resourceVersion"]), None, obj))
        collection.subscribers.append(partial(note, kind))
    return records
