"""Cache of tenancy configuration: Queues, the namespaces they select, and PriorityClasses.

Administrators write these objects. They decide which namespaces may use which queue, how much a
queue may hold, and how urgent a gang is. Queues and namespaces are read together, because a
queue's namespace selector is resolved to a set of names here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bireme.core.gangs import Key
from bireme.core.queues import Queue, with_those_above
from bireme.core.reasons import Reason
from bireme.kube import names, quantities, wire
from bireme.kube.api.queues import QueueSpec


@dataclass(slots=True)
class Tenancy:
    """Queues, namespaces and priority classes by name.

    ``on_change`` is called after every change that can matter to a decision. ``on_namespaces`` is
    called after every change of the labels of a namespace. ``on_default_queue`` is called with a
    namespace after a change of its default queue.
    """

    on_change: Callable[[], None]
    on_namespaces: Callable[[], None] = lambda: None
    on_default_queue: Callable[[str], None] = lambda _: None
    queues: dict[str, Queue] = field(default_factory=dict)
    queue_manifests: dict[str, wire.CustomObject] = field(default_factory=dict)
    _start_timeouts: dict[str, int] = field(default_factory=dict)
    _assumptions: dict[str, bool] = field(default_factory=dict)
    """``assumeResumable`` by queue."""
    _exempt: frozenset[str] = frozenset()
    """Queues whose PodGroups are never preempted."""
    _namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    _priorities: dict[str, wire.V1PriorityClass] = field(default_factory=dict)

    def put_queue(self, key: Key, queue: wire.CustomObject) -> None:
        self.queue_manifests[key[1]] = queue
        self._read_queues()

    def delete_queue(self, key: Key) -> None:
        """Remove a Queue; jobs in it wait with reason QueueNotFound, running ones continue."""
        self.queue_manifests.pop(key[1], None)
        self._read_queues()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none while it is unknown."""
        return self._namespaces.get(namespace, {})

    def put_namespace(self, key: Key, namespace: wire.MetadataOnly) -> None:
        labels = namespace.metadata.labels or {}
        if self._namespaces.get(key[1]) != labels:
            previous = self.default_queue(key[1])
            self._namespaces[key[1]] = labels
            self._read_queues()
            self.on_namespaces()
            if self.default_queue(key[1]) != previous:
                self.on_default_queue(key[1])

    def delete_namespace(self, key: Key) -> None:
        self._namespaces.pop(key[1], None)
        self._read_queues()
        self.on_namespaces()

    def default_queue(self, namespace: str) -> str:
        """Return the default queue in the label of a namespace; empty without one."""
        return self.labels_of(namespace).get(names.DEFAULT_QUEUE_LABEL, "")

    def start_timeout_seconds(self, queue: str) -> int | None:
        """Return the smallest start timeout of ``queue`` and its ancestors; None without one."""
        timeouts = self._start_timeouts
        path = with_those_above(queue, self.queues)
        return min((timeouts[name] for name in path if name in timeouts), default=None)

    def may_preempt_pod_groups(self, queue: str) -> bool:
        """Return whether PodGroups in ``queue`` may be preempted."""
        return self._exempt.isdisjoint(with_those_above(queue, self.queues))

    def assumes_resumable(self, queue: str) -> tuple[str, bool] | None:
        """Return the first of ``queue`` and its ancestors with ``assumeResumable``, and the value.

        None if no such queue exists.
        """
        assumptions = self._assumptions
        path = with_those_above(queue, self.queues)
        return next(((name, assumptions[name]) for name in path if name in assumptions), None)

    def _read_queues(self) -> None:
        self._start_timeouts = {}
        previous = self._assumptions, self._exempt
        self._assumptions = {}
        exempt = set()
        for name, manifest in self.queue_manifests.items():
            spec, _ = QueueSpec.read(manifest.fields)
            if spec is not None and spec.start_timeout_seconds is not None:
                self._start_timeouts[name] = spec.start_timeout_seconds
            if spec is not None and spec.assume_resumable is not None:
                self._assumptions[name] = spec.assume_resumable
            if spec is not None and not spec.preempt_pod_groups:
                exempt.add(name)
        self._exempt = frozenset(exempt)
        read = {
            name: queue_from_manifest(manifest, self._namespaces)
            for name, manifest in self.queue_manifests.items()
        }
        # The operator writes the status of queues itself. That must not cause another cycle.
        if read != self.queues or previous != (self._assumptions, self._exempt):
            self.queues = read
            self.on_change()

    def put_priority_class(self, key: Key, priority: wire.V1PriorityClass) -> None:
        self._priorities[key[1]] = priority
        self.on_change()

    def delete_priority_class(self, key: Key) -> None:
        self._priorities.pop(key[1], None)
        self.on_change()

    def priority(self, name: str | None) -> tuple[int, tuple[Reason, str] | None]:
        """Return the value of a PriorityClass, and a fault if it does not exist.

        Without a ``name`` the cluster's default class counts, or 0 if there is none.
        """
        priority_class = self._class(name)
        if priority_class is not None:
            return priority_class.value, None
        if name is None:
            return 0, None
        return 0, (
            Reason.PRIORITY_CLASS_NOT_FOUND,
            f"PriorityClass {name!r} does not exist; create it or change spec.priorityClassName",
        )

    def priority_classes(self) -> Iterable[str]:
        """Return the names of all PriorityClasses."""
        return tuple(self._priorities)

    def may_preempt(self, name: str | None) -> bool:
        """Return whether gangs of this PriorityClass (None: the default one) may preempt others."""
        priority_class = self._class(name)
        return priority_class is None or priority_class.preemption_policy != "Never"

    def _class(self, name: str | None) -> wire.V1PriorityClass | None:
        if name is not None:
            return self._priorities.get(name)
        defaults = [p for p in self._priorities.values() if p.global_default]
        # The lowest of several defaults counts, as in the API server's admission plugin.
        return min(defaults, key=lambda p: (p.value, p.metadata.name), default=None)


def queue_of(named: str | None, default_queue: str) -> str:
    """Return the queue of a gang from its spec (``named``) or its namespace (``default_queue``)."""
    return named or default_queue or names.DEFAULT_QUEUE


def fault_of_queue(name: str, queues: Mapping[str, bool], *, names_others: bool = True) -> str:
    """Return the reason why a gang would not start in the queue ``name``; "" without one.

    ``queues`` tells by name whether a queue is open. With ``names_others`` the reason lists some
    existing queues.
    """
    if name not in queues:
        existing = ", ".join(sorted(queues)[:5]) or "none exist"
        which = f"one of: {existing}" if names_others else "one that exists"
        return f"spec.queue: there is no queue {name!r}; name {which}"
    if not queues[name]:
        return f"spec.queue: queue {name!r} is closed and admits nothing; name another one"
    return ""


def queue_source(namespace: str, default_queue: str) -> str:
    """Return the text for the source of a gang's queue that its spec does not name; or ""."""
    label = names.DEFAULT_QUEUE_LABEL
    return f"label {label} of namespace {namespace!r}" if default_queue else ""


def queue_from_manifest(
    queue: wire.CustomObject, namespaces: Mapping[str, Mapping[str, str]]
) -> Queue:
    """Return the queue as the core uses it; ``namespaces`` maps names to labels.

    A queue whose spec cannot be read is closed, so that it admits nothing.
    """
    name = queue.metadata.name
    spec, _ = QueueSpec.read(queue.fields)
    if spec is None:
        return Queue(name, is_open=False)
    allowed = None
    if spec.namespace_selector is not None:
        selects = spec.namespace_selector.selects
        allowed = frozenset(n for n, labels in namespaces.items() if selects(dict(labels)))
    return Queue(
        name=name,
        limit=_amounts(spec.limit),
        user_priority=spec.user_priority,
        wait_bound_seconds=spec.wait_bound_seconds,
        is_open=spec.state == "Open",
        namespaces=allowed,
        parent=spec.parent or "",
        weight=spec.weight,
        guaranteed=_amounts(spec.guaranteed),
        max_min_runtime_seconds=spec.max_min_runtime_seconds,
    )


def _amounts(manifest: Mapping[str, str | int]) -> dict[str, int]:
    """Return whole amounts, rounded down, because they are capacity."""
    return {
        r: quantities.parse_quantity(r, value, rounding="down") for r, value in manifest.items()
    }
