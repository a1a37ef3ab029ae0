"""The Services by whose names the replicas of TrainingJobs find each other, as they exist now.

Read from the first job on that has one: until then nobody asks.
"""

from collections.abc import Callable

from bireme.core.gangs import Key
from bireme.kube import wire


class JobServices:
    """Owners of the Services that carry the label of a job; ``requeue`` has a job looked at."""

    def __init__(self, requeue: Callable[[Key], None]) -> None:
        self._requeue = requeue
        self._owners: dict[Key, frozenset[str]] = {}
        self._is_listed = False
        self.on_wanted: Callable[[], None] = lambda: None

    def put(self, key: Key, service: wire.MetadataOnly) -> None:
        """Take note of a Service that exists; one that is being deleted still does."""
        self._owners[key] = frozenset(o.uid for o in service.metadata.owner_references or ())

    def delete(self, key: Key) -> None:
        """Take note that a Service is gone, and have its job looked at."""
        if self._owners.pop(key, None) is not None:
            self._requeue(key)

    def all_listed(self) -> None:
        """Take note that what exists is known from now on."""
        self._is_listed = True

    def is_missing(self, key: Key, job_uid: str) -> bool:
        """Return whether the job is known to lack its Service; the first question starts the watch.

        A Service of somebody else, which has the name, is not the job's.
        """
        self.on_wanted()
        return self._is_listed and job_uid not in self._owners.get(key, ())
