"""Shapes of gangs that a pass has tried to place, so that it tries none in vain a second time."""

from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Placer
from bireme.core.reservations import CapacityLedger
from bireme.core.snapshot import ClusterSnapshot


class ShapeFits:
    """Answers of one pass about shapes; capacity only shrinks while it lasts."""

    __slots__ = ("_fitting", "_ledger", "_placer", "_snapshot", "_too_large", "_too_large_beside")

    def __init__(self, snapshot: ClusterSnapshot, placer: Placer, ledger: CapacityLedger) -> None:
        self._snapshot, self._placer, self._ledger = snapshot, placer, ledger
        self._too_large: set[object] = set()
        # Shapes that do not fit beside the reservation.
        self._too_large_beside: set[object] = set()
        # Shapes that fit now, with the number of ledger changes at that moment.
        self._fitting: dict[object, int] = {}

    def is_too_large(self, shape: object) -> bool:
        """Return whether a gang of this shape was tried and did not fit the free capacity."""
        return shape in self._too_large

    def place(self, gang: Gang) -> Placement | None:
        """Return places that ``gang`` may have without delaying the reserved gang, or None."""
        room, shape = self._ledger.room_for(gang), self._snapshot.shape(gang)
        # A gang that does not fit now does not fit beside the reservation either.
        too_large = self._too_large if room is self._ledger.now else self._too_large_beside
        if shape in too_large or shape in self._too_large:
            return None
        placement = None if room.lacks(gang) else self._placer.place(gang, room)
        if placement is None:
            too_large.add(shape)
        return placement

    def fits_now(self, gang: Gang) -> bool:
        """Return whether only the blocked gang's reservation keeps ``gang`` from starting."""
        shape = self._snapshot.shape(gang)
        if shape in self._too_large:
            return False
        # "It fits" holds until the next admission only; "it does not" holds for the whole pass.
        if self._fitting.get(shape) != self._ledger.changes:
            now = self._ledger.now
            if now.lacks(gang) or self._placer.place(gang, now) is None:
                self._too_large.add(shape)
                return False
            self._fitting[shape] = self._ledger.changes
        return True
