"""Record every revision that a fake API server stores, for the observer of histories."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.support.fakeapi.store import Change, Store
from tests.support.history.records import Record


class StoreRecorder:
    """Records a store as :class:`~tests.support.history.recorder.Recorder` does a cluster.

    ``kinds`` maps resource paths to kinds; what is stored already counts as added.
    """

    def __init__(
        self, store: Store, kinds: Mapping[str, str], seconds: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.records: list[Record] = []
        self._seconds = seconds
        for resource, kind in kinds.items():
            collection = store.collection(resource)
            for obj in collection.objects.values():
                version = int(obj["metadata"]["resourceVersion"])
                self._note(kind, Change(version, None, obj))
            collection.subscribers.append(partial(self._note, kind))

    def _note(self, kind: str, change: Change) -> None:
        seconds, obj = round(self._seconds(), 3), change.after or change.before or {}
        if change.after is None:
            self.records.append(Record(seconds, "DELETED", kind, change.version, obj))
        elif change.before is None:
            self.records.append(Record(seconds, "ADDED", kind, change.version, obj))
        else:
            self.records.append(Record(seconds, "MODIFIED", kind, change.version, obj))
