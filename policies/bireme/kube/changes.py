"""Changes of the watched objects of a cluster, as each reader of them needs to know."""

from collections.abc import Callable
from enum import Enum, auto

from bireme.core.gangs import Key


class Change(Enum):
    """A change of one gang."""

    OBJECT = auto()
    """Its job, PodGroup or pods, or a request of :meth:`Changes.requeue`."""
    MEMBERS = auto()
    """Its plan or its pods; this is a change of an object too."""
    ASSUMED_PLAN = auto()
    """The plan that is being written for it. No watched object has changed."""


class Changes:
    """The changes so far: their number, and the changed gangs for each reader.

    Attributes:
        revision: Number of changes that can matter to a decision, without those of the tenancy.
        tenancy_revision: Number of changes of queues, namespaces and priority classes.
        on_newcomer: Called with the namespace of every new or edited gang without a plan.

    Args:
        on_change: Called after every change that can matter to a decision.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.on_newcomer: Callable[[str], None] = lambda _: None
        self.revision = 0
        self.tenancy_revision = 0
        self._sets: dict[Change, list[set[Key]]] = {change: [] for change in Change}

    def follow(self, *changes: Change) -> set[Key]:
        """Return a set that receives each gang with one of ``changes`` from now on.

        Its reader clears it. A reader that never asks costs nothing.
        """
        gangs: set[Key] = set()
        for change in changes:
            self._sets[change].append(gangs)
        return gangs

    def note(self) -> None:
        """Note a change that can matter to the decision on any gang."""
        self.revision += 1
        self._on_change()

    def note_tenancy(self) -> None:
        """Note a change of a queue, a namespace or a priority class."""
        self.tenancy_revision += 1
        self._on_change()

    def requeue(self, gang: Key) -> None:
        """Reconcile the gang again, although maybe no watched object has changed."""
        self._add(Change.OBJECT, gang)
        self.note()

    def note_members(self, gang: Key) -> None:
        """Note that the plan or the pods of ``gang`` changed."""
        self._add(Change.MEMBERS, gang)
        self.requeue(gang)

    def note_assumed_plan(self, gang: Key) -> None:
        """Note that another plan than before, or none, is being written for ``gang``."""
        self._add(Change.ASSUMED_PLAN, gang)

    def _add(self, change: Change, gang: Key) -> None:
        for gangs in self._sets[change]:
            gangs.add(gang)
