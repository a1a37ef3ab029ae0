"""Who may run and how urgently: queues, the namespaces they select, priority classes."""

from collections.abc import Callable

from bireme.core.gangs import Key
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.kube import queues, wire


class Standing:
    """The administrators' objects. ``on_change`` is called after every change that matters."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.queues: dict[str, Queue] = {}
        self.queue_manifests: dict[str, wire.Custom] = {}
        self._on_change = on_change
        self._namespaces: dict[str, dict[str, str]] = {}
        self._priorities: dict[str, wire.PriorityClass] = {}

    def put_queue(self, key: Key, queue: wire.Custom) -> None:
        """A Queue appeared or changed."""
        self.queue_manifests[key[1]] = queue
        self._read_queues()

    def delete_queue(self, key: Key, queue: wire.Custom) -> None:
        """A Queue is gone; jobs in it wait with reason QueueNotFound, running ones go on."""
        self.queue_manifests.pop(key[1], None)
        self._read_queues()

    def put_namespace(self, key: Key, namespace: wire.Namespace) -> None:
        """A namespace appeared or its labels changed."""
        labels = namespace.metadata.labels or {}
        if self._namespaces.get(key[1]) != labels:
            self._namespaces[key[1]] = labels
            self._read_queues()

    def delete_namespace(self, key: Key, namespace: wire.Namespace) -> None:
        """A namespace is gone."""
        self._namespaces.pop(key[1], None)
        self._read_queues()

    def _read_queues(self) -> None:
        read = {
            name: queues.from_manifest(manifest, self._namespaces)
            for name, manifest in self.queue_manifests.items()
        }
        if read != self.queues:
            self.queues = read
            self._on_change()

    def put_priority_class(self, key: Key, priority: wire.PriorityClass) -> None:
        """A PriorityClass appeared or changed."""
        self._priorities[key[1]] = priority
        self._on_change()

    def delete_priority_class(self, key: Key, priority: wire.PriorityClass) -> None:
        """A PriorityClass is gone."""
        self._priorities.pop(key[1], None)
        self._on_change()

    def priority(self, name: str | None) -> tuple[int, tuple[Reason, str] | None]:
        """The value of a PriorityClass (or of the default one), and a fault if there is none."""
        known = self._class(name)
        if known is not None:
            return known.value, None
        if name is None:
            return 0, None
        return 0, (
            Reason.PRIORITY_CLASS_NOT_FOUND,
            f"PriorityClass {name!r} does not exist; create it or change spec.priorityClassName",
        )

    def may_preempt(self, name: str | None) -> bool:
        """Whether others may be stopped for gangs of a PriorityClass (or of the default one)."""
        known = self._class(name)
        return known is None or known.preemption_policy != "Never"

    def _class(self, name: str | None) -> wire.PriorityClass | None:
        if name is not None:
            return self._priorities.get(name)
        defaults = [p for p in self._priorities.values() if p.global_default]
        # The lowest, as the API server chooses among several.
        return min(defaults, key=lambda p: (p.value, p.metadata.name), default=None)
