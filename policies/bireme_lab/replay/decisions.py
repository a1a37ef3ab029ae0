"""Decisions of policies on the recorded snapshots, compared with the recorded decisions.

Each cycle stands alone: the next snapshot is the recorded one, whatever a policy decides. The
policy of the record must decide as recorded in every cycle. If it does not, it depends on something
that no snapshot holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bireme.core.cycle import run_cycle
from bireme.core.policy import Policy
from bireme.replay.reader import RecordedCycle
from bireme.replay.record import Outline
from bireme.replay.writer import outline_of

KINDS: Final[Mapping[str, str]] = {
    "starts": "starts that the record does not have",
    "missing_starts": "starts that only the record has",
    "other_places": "starts of both, on other nodes or at another size",
    "stops": "stops that the record does not have, or for another gang",
    "missing_stops": "stops that only the record has, or for another gang",
    "resizes": "resizes that only one of them has, or to other places",
    "other_reasons": "gangs that both hold, for another reason",
    "other_growth": "gangs that only one of them grows node pools for, or by other nodes",
}
"""Kinds of differences, and the meaning of each count."""
_MAX_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Example:
    """A cycle that differs: its time (POSIX seconds), file and line, and gangs by kind."""

    now: float
    place: str
    gangs: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class DecisionComparison:
    """One policy compared with the record.

    Attributes:
        cycles: Number of cycles decided again.
        same: Number of those whose decision equals the recorded one in everything.
        counts: Differences over all cycles, by kind of :data:`KINDS`.
        examples: The first cycles that differ in one of those kinds.
    """

    cycles: int = 0
    same: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Example] = field(default_factory=list)

    def compare(self, cycle: RecordedCycle, place: str, policy: Policy) -> None:
        """Decide again on ``cycle`` of ``place`` (file and line) by ``policy``."""
        snapshot = cycle.snapshot
        decision = run_cycle(snapshot, policy, explain=False)
        mine = outline_of(decision, snapshot.nodes)
        self.cycles += 1
        if mine == cycle.outline:  # the digest covers what the outline lacks
            self.same += 1
            return
        differing = differences(cycle.outline, mine)
        for kind, uids in differing.items():
            self.counts[kind] += len(uids)
        if len(self.examples) < _MAX_EXAMPLES and any(differing.values()):
            gangs = [*snapshot.waiting, *(running.gang for running in snapshot.running)]
            names = {gang.uid: f"{gang.namespace}/{gang.name}" for gang in gangs}
            named = {
                k: tuple(names.get(u, u) for u in uids) for k, uids in differing.items() if uids
            }
            self.examples.append(Example(snapshot.now, place, named))

    def to_json(self) -> dict[str, object]:
        """Return all numbers and examples."""
        examples = [
            {"time": one.now, "place": one.place, **{k: list(v) for k, v in one.gangs.items()}}
            for one in self.examples
        ]
        return {
            "cycles": self.cycles,
            "same": self.same,
            "differences": dict(self.counts),
            "examples": examples,
        }


def differences(recorded: Outline, other: Outline) -> dict[str, list[str]]:
    """Return the uids of gangs that ``other`` treats differently, by kind of :data:`KINDS`."""
    both = recorded.starts.keys() & other.starts.keys()
    stops, recorded_stops = set(other.stops.items()), set(recorded.stops.items())
    resized = recorded.resizes.keys() | other.resizes.keys()
    grown = recorded.growth.keys() | other.growth.keys()
    in_both = recorded.holds.keys() & other.holds.keys()
    uids_by_kind = {
        "starts": other.starts.keys() - both,
        "missing_starts": recorded.starts.keys() - both,
        "other_places": {u for u in both if recorded.starts[u] != other.starts[u]},
        "stops": {uid for uid, _ in stops - recorded_stops},
        "missing_stops": {uid for uid, _ in recorded_stops - stops},
        "resizes": {u for u in resized if recorded.resizes.get(u) != other.resizes.get(u)},
        "other_reasons": {u for u in in_both if recorded.holds[u] != other.holds[u]},
        "other_growth": {u for u in grown if recorded.growth.get(u) != other.growth.get(u)},
    }
    return {kind: sorted(uids) for kind, uids in uids_by_kind.items()}
