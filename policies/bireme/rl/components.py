"""Which parts of a policy a checkpoint can be, and those parts.

An orderer, a placer or a sizer needs a network of its own; a sizer's network that chooses serves as
all three.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import PARTS, Orderer, PartName, Placer, Ranked, ScoreQuestion, Sizer
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing, fill, place_by
from bireme.heuristics.ranking import SortKey, ranked
from bireme.onnx.cards import Card
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.rl import encoders
from bireme.rl.checkpoint import Checkpoint, SizePart
from bireme.rl.protocols import ChoiceEncoder, Choices

# Learned orders: gangs by the score that a network gives them.

ORDERER_LIMIT_SECONDS: Final = 1.0
"""How long an order may take; the rules order in the same cycle after that."""


class ScoredOrderer(ABC):
    """Highest score first; where ``stops_others`` says so, the score is also the claim.

    Without that, running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    """

    stops_others: bool

    @abstractmethod
    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """One for each of ``gangs``, of which there is at least one."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By descending score."""
        if not gangs:
            return []
        # A gang may run and wait at once: then there are two of one uid.
        known = sorted(gangs, key=lambda gang: (gang.uid, gang.arrived))
        answer = self.scores(known, snapshot)
        scores = {id(gang): score for gang, score in zip(known, answer, strict=True)}
        claims = scores if self.stops_others else {}
        return ranked(gangs, lambda g: SortKey((-scores[id(g)],), scores[id(g)], claims.get(id(g))))

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """The lowest score of ``gangs``; infinite where nobody has a claim."""
        if not gangs or not self.stops_others:
            return math.inf
        return min(self.scores(gangs, snapshot))


class LearnedOrderer(ScoredOrderer):
    """Orders by the scores of a checkpoint's network.

    A cluster without nodes is no question to a network: all scores are 0.
    """

    def __init__(
        self, checkpoint: Checkpoint, limit_seconds: float = ORDERER_LIMIT_SECONDS
    ) -> None:
        """Raises CheckpointError: ``checkpoint`` orders nothing."""
        if checkpoint.orderer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no orderer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.orderer
        self._limit_seconds = limit_seconds
        self.stops_others = self._part.card.stops_others
        self.keeps_equal_gangs_in_order = bool(
            getattr(self._part.encoder, "keeps_equal_gangs_in_order", False)
        )

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Raises AnswerError where the network gives no valid answer."""
        if not len(snapshot.nodes):
            return [0.0] * len(gangs)  # nothing can start, and networks expect machines
        found: list[float] = self._part.scores(gangs, snapshot, self._limit_seconds).tolist()
        return found


# Learned places: a gang's replicas on the nodes that a network likes best.
#
# The network judges nodes for one task at a time. That a gang starts whole, that its roles meet
# where
# they must, and what fits, stays with the rules (:mod:`bireme.heuristics.packing`).

PLACER_LIMIT_SECONDS: Final = 0.5
"""How long the judgement of one task may take; the rules place that gang after that."""


class LearnedPlacer:
    """Each task on the nodes of highest affinity, filled one after the other.

    Ties: the node with the least free capacity, then by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` places nothing."""
        if checkpoint.placer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no placer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.placer

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None. Raises AnswerError where the network gives no answer."""
        taken: dict[Role, IntArray] = {}

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            affinities = self._part.affinities(gang, task, capacity, taken, PLACER_LIMIT_SECONDS)
            order = np.lexsort((capacity.tightness.round(9), -affinities))
            counts = fill(room, task.replicas, order)
            rows = np.repeat(np.arange(len(counts)), counts)
            taken[task.role] = np.concatenate([taken.get(task.role, rows[:0]), rows])
            return counts

        return place_by(gang, capacity, divide)


# Learned choices: one network says who starts, with how many replicas and in which node pool.
#
# A chooser answers once per snapshot; orderer, placer and sizer of a policy read their share of
# that
# answer (:class:`~bireme.rl.protocols.Choices`). It chooses among gangs that wait and stops nobody.

CHOOSER_LIMIT_SECONDS: Final = 1.0
"""How long all answers of a cycle may take together; the rules decide in the same cycle after."""
_PACKING: Final = Packing()


class _Answer(NamedTuple):
    """To which gangs, by uid, and what; ``fault`` is empty where the answer is valid."""

    uids: tuple[str, ...]
    choices: Choices
    fault: str = ""


class Chooser:
    """Has a checkpoint choose, and remembers the answer with the snapshot."""

    def __init__(
        self, checkpoint: Checkpoint, limit_seconds: float = CHOOSER_LIMIT_SECONDS
    ) -> None:
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

        def standing(gang: Gang) -> SortKey:
            score = 0.0 if _runs(gang, snapshot) else scores.get(gang.uid, 0.0)
            return SortKey((-score,), score)

        return ranked(gangs, standing)

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
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


# Learned sizes: how many replicas elastic gangs should have, by the moves of a network.


class LearnedSizer:
    """Sizes as a checkpoint's network says; gangs that it leaves out go by the general rule.

    A cluster without nodes is no question to a network.
    """

    def __init__(
        self, checkpoint: Checkpoint, limit_seconds: float = CHOOSER_LIMIT_SECONDS
    ) -> None:
        """Raises CheckpointError: ``checkpoint`` sizes nothing."""
        if checkpoint.sizer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no sizer; name one that has, or a rule"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.sizer
        self._limit_seconds = limit_seconds
        self._chooser = Chooser(checkpoint, limit_seconds) if self._part.is_chooser else None

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Raises AnswerError where the network gives no valid answer."""
        if not ranked or not len(snapshot.nodes):
            return {}
        if self._chooser is not None:
            return self._chooser.choices([e.gang for e in ranked], snapshot).sizes
        return self._part.sizes(ranked, snapshot, self._limit_seconds)


def served(card: Card) -> tuple[PartName, ...]:
    """The parts that the checkpoint of ``card`` can be.

    Raises:
        CheckpointError: it asks for an encoder that this Bireme does not have.
    """
    parts = card.parts
    if parts.sizer is not None:
        encoder = encoders.size_encoder(parts.sizer.encoder)
        if isinstance(encoder, ChoiceEncoder):
            return PARTS
    return tuple(parts.by_name())


def orderer_of(checkpoint: Checkpoint) -> Orderer:
    """Raises CheckpointError: ``checkpoint`` orders nothing."""
    if checkpoint.orderer is None and _chooses(checkpoint):
        return ChosenOrderer(checkpoint)
    return LearnedOrderer(checkpoint)


def placer_of(checkpoint: Checkpoint) -> Placer:
    """Raises CheckpointError: ``checkpoint`` places nothing."""
    if checkpoint.placer is None and _chooses(checkpoint):
        return ChosenPlacer(checkpoint)
    return LearnedPlacer(checkpoint)


def sizer_of(checkpoint: Checkpoint) -> Sizer:
    """Raises CheckpointError: ``checkpoint`` sizes nothing."""
    return LearnedSizer(checkpoint)


def _chooses(checkpoint: Checkpoint) -> bool:
    return checkpoint.sizer is not None and checkpoint.sizer.is_chooser


# Learned scores of nodes for one more replica: what the extender's ``prioritize`` asks for.
#
# A placer's affinities only mean an order, so what is told is the rank among the nodes asked about.
# Ranks are one tenth apart, because kube-scheduler takes whole points from 0 to 10: the best node
# is
# alone at the top, unless the network judges several alike.

SCORER_LIMIT_SECONDS: Final = 0.5
"""How long a score may take; kube-scheduler waits two seconds for the extender."""
_RANKS: Final = 10


class LearnedScorer:
    """1 for the node of highest affinity, one tenth less for each that is worse, down to 0."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError: ``checkpoint`` places nothing."""
        if checkpoint.placer is None:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} has no placer; nothing in it scores nodes"
            )
        self.checkpoint = checkpoint
        self._part = checkpoint.placer

    def score(self, question: ScoreQuestion) -> FloatArray:
        """float64, shape (candidates,), in [0, 1].

        Raises:
            AnswerError: the network gives no valid answer.
        """
        if not len(question.rows):
            return np.zeros(0)
        gang = Gang("", question.task.name, "", "", (question.task,), arrived=0.0)
        affinities = self._part.affinities(
            gang, question.task, question.capacity, question.peers, SCORER_LIMIT_SECONDS
        )
        asked = affinities[question.rows]
        best = np.unique(asked)[-_RANKS:]
        rank = len(best) - np.searchsorted(best, asked, side="right")
        return np.where(asked < best[0], 0.0, 1.0 - rank / _RANKS)
