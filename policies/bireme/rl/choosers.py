"""Learned choices: one network says who starts, with how many replicas and in which node pool.

A chooser answers once per snapshot; orderer, placer and sizer of a policy read their share of that
answer (:class:`~bireme.rl.protocols.Choices`). It chooses among gangs that wait and stops nobody.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Placer, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.ranking import Standing, ranked
from bireme.rl.checkpoints import Checkpoint, SizePart
from bireme.rl.errors import AnswerError, CheckpointError
from bireme.rl.protocols import Choices

LIMIT_SECONDS: Final = 1.0
"""How long all answers of a cycle may take together; the rules decide in the same cycle after."""
_PACKING: Final = Packing()


class _Answer(NamedTuple):
    """To which gangs, by uid, and what; ``fault`` is empty where the answer is valid."""

    uids: tuple[str, ...]
    choices: Choices
    fault: str = ""


class Chooser:
    """Has a checkpoint choose, and remembers the answer with the snapshot."""

    def __init__(self, checkpoint: Checkpoint, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Raises CheckpointError: ``checkpoint`` chooses nothing."""
        if checkpoint.sizer is None or not checkpoint.sizer.is_chooser:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} chooses no gangs and no node pools; name one "
                "that does, or a rule"
            )
        self.checkpoint = checkpoint
        self._part: SizePart = checkpoint.sizer
        self._limit_seconds = limit_seconds

    def choices(self, gangs: Iterable[Gang], snapshot: ClusterSnapshot) -> Choices:
        """What to do with those of ``gangs`` that wait.

        Raises:
            AnswerError: the network gives no valid answer, or gave none when it was first asked.
        """
        waiting = [gang for gang in gangs if not _runs(gang, snapshot)]
        answer = self._remembered(snapshot)
        if answer is None or answer.uids != _uids(waiting):
            answer = self._asked(waiting, snapshot)
        return _valid(answer)

    def known(self, snapshot: ClusterSnapshot) -> Choices:
        """What was last chosen in ``snapshot``; of all its sound gangs, where nobody has asked.

        Raises:
            AnswerError: as :meth:`choices`.
        """
        answer = self._remembered(snapshot)
        if answer is None:
            sound = [g for g in snapshot.waiting if g.fault is None and not g.flaw]
            answer = self._asked(sound, snapshot)
        return _valid(answer)

    def _remembered(self, snapshot: ClusterSnapshot) -> _Answer | None:
        found = snapshot.memo.get(self._key)
        return found if isinstance(found, _Answer) else None

    @property
    def _key(self) -> tuple[str, str]:
        return "choices", self.checkpoint.sha256

    def _asked(self, waiting: Sequence[Gang], snapshot: ClusterSnapshot) -> _Answer:
        choices, fault = Choices(), ""
        if waiting and len(snapshot.nodes):  # else networks would be asked about nothing
            try:
                choices = self._part.choices(waiting, snapshot, self._limit_seconds)
            except AnswerError as error:
                fault = str(error)
        answer = _Answer(_uids(waiting), choices, fault)
        snapshot.memo[self._key] = answer
        return answer


def _runs(gang: Gang, snapshot: ClusterSnapshot) -> bool:
    """Whether ``gang`` holds places; one of the same uid may wait, with members that came later."""
    running = snapshot.running_by_uid.get(gang.uid)
    return running is not None and running.gang is gang


def _uids(gangs: Sequence[Gang]) -> tuple[str, ...]:
    return tuple(sorted(gang.uid for gang in gangs))


def _valid(answer: _Answer) -> Choices:
    if answer.fault:
        raise AnswerError(answer.fault)
    return answer.choices


class ChosenOrderer:
    """Chosen gangs in the order in which they were chosen, then all others by arrival.

    Running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` chooses nothing."""
        self.chooser = Chooser(checkpoint)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """The score counts down from the number of chosen gangs; it is 0 of all others.

        Raises:
            AnswerError: the network gives no valid answer.
        """
        chosen = self.chooser.choices(gangs, snapshot).order
        scores = {uid: float(len(chosen) - place) for place, uid in enumerate(chosen)}

        def standing(gang: Gang) -> Standing:
            score = 0.0 if _runs(gang, snapshot) else scores.get(gang.uid, 0.0)
            return Standing((-score,), score)

        return ranked(gangs, standing)

    def lowest_claim(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Infinite: nobody has a claim."""
        return math.inf


class ChosenPlacer:
    """Packed into the node pool that was chosen for the gang, if it fits there, else anywhere."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` chooses nothing."""
        self.chooser = Chooser(checkpoint)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None: without a snapshot nothing is chosen."""
        return _PACKING.place(gang, capacity)

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """The placer for the gangs of ``snapshot``."""
        return _InChosenPools(self.chooser, snapshot)


@dataclass(frozen=True, slots=True)
class _InChosenPools:
    """Raises AnswerError where the network gives no valid answer."""

    chooser: Chooser
    snapshot: ClusterSnapshot

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        pool = self.chooser.known(self.snapshot).pools.get(gang.uid)
        if pool is not None:
            placement = _PACKING.place(gang, capacity.inside(pool))
            if placement is not None:
                return placement
        return _PACKING.place(gang, capacity)
