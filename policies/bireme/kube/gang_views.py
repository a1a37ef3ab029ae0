"""Views of gangs: the plan of each gang with its pods, written or assumed."""

from collections.abc import Iterator, Mapping

from bireme.core.gangs import Key
from bireme.kube import allocations
from bireme.kube.allocations import AssumedPlan, GangView
from bireme.kube.changes import Change, Changes
from bireme.kube.watched_objects import WatchedObjects

Reserved = Mapping[Key, AssumedPlan]
"""Assumed plans of gangs that are being admitted."""


class GangViews:
    """Views of gangs by key, made when they are read and cached until the plan or a pod changes.

    Attributes:
        reserved: The assumed plans as of the last snapshot.
    """

    def __init__(self, objects: WatchedObjects, changes: Changes) -> None:
        self.reserved: Reserved = {}
        self._objects = objects
        self._changes = changes
        self._outdated: set[Key] | None = None
        self._written: dict[Key, GangView] = {}
        self._assumed: dict[Key, tuple[AssumedPlan, GangView]] = {}

    def of_gangs(self) -> Iterator[tuple[Key, GangView]]:
        """Yield every gang that has a plan."""
        # In order, unlike a set.
        for key in self._objects.group_plans | self._objects.job_plans:
            if (view := self.get(key)) is not None:
                yield key, view

    def get(self, key: Key) -> GangView | None:
        """Return the plan of a gang with its pods; None if it has no plan."""
        self._drop_outdated()
        view, planned = self._written.get(key), self._objects.plan_of(key)
        if view is None and planned is not None:
            history, members = self._objects.history, self._objects.members_of(key)
            uid, plan = planned.job_uid, planned.plan
            succeeded = history.names_of_succeeded(key, uid, plan)
            disruptions = history.disruptions_of(key)
            view = allocations.view_of(key, uid, plan, members, disruptions, succeeded)
            self._written[key] = view
        return view

    def effective(self, key: Key) -> GangView | None:
        """Return the view of a gang's assumed plan, or else of its written plan."""
        assumed = self.reserved.get(key)
        return self.get(key) if assumed is None else self._view_of_assumed(key, assumed)

    def assume(self, reserved: Reserved) -> None:
        """Assume the plans ``reserved``, and no others."""
        previous, self.reserved = self.reserved, reserved
        for key in (*previous, *(key for key in reserved if key not in previous)):
            if previous.get(key) is not reserved.get(key):
                self._changes.note_assumed_plan(key)

    def _view_of_assumed(self, key: Key, assumed: AssumedPlan) -> GangView:
        self._drop_outdated()
        cached = self._assumed.get(key)
        if cached is None or cached[0] is not assumed:
            # Pods appear while the plan is being written: a bound pod holds its place itself.
            uid, plan = assumed.job_uid, assumed.plan
            succeeded = self._objects.history.names_of_succeeded(key, uid, plan)
            members = self._objects.members_of(key)
            view = allocations.view_of(key, uid, plan, members, succeeded=succeeded)
            cached = self._assumed[key] = (assumed, view)
        return cached[1]

    def _drop_outdated(self) -> None:
        if self._outdated is None:
            self._outdated = self._changes.follow(Change.MEMBERS)
        while self._outdated:
            key = self._outdated.pop()
            self._written.pop(key, None)
            self._assumed.pop(key, None)
