"""Cache of the headless Services of TrainingJobs. Replicas find each other by their names.

The watch starts with the first job that needs a Service.
"""

from collections.abc import Callable

from bireme.core.gangs import Key
from bireme.kube import wire


class JobServices:
    """Owners of the Services that carry the label of a job; ``requeue`` reconciles a job."""

    def __init__(self, requeue: Callable[[Key], None]) -> None:
        self._requeue = requeue
        self._owners: dict[Key, frozenset[str]] = {}
        self._is_listed = False
        self.on_wanted: Callable[[], None] = lambda: None

    def put(self, key: Key, service: wire.MetadataOnly) -> None:
        """Store an existing Service, even one that is being deleted."""
        self._owners[key] = frozenset(o.uid for o in service.metadata.owner_references or ())

    def delete(self, key: Key) -> None:
        """Forget a Service and reconcile its job."""
        if self._owners.pop(key, None) is not None:
            self._requeue(key)

    def all_listed(self) -> None:
        """Record that all Services have been listed."""
        self._is_listed = True

    def is_missing(self, key: Key, job_uid: str) -> bool:
        """Return whether the job certainly lacks its Service; the first call starts the watch.

        A Service with that name but another owner does not count.
        """
        self.on_wanted()
        return self._is_listed and job_uid not in self._owners.get(key, ())
