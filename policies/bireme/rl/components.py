"""Policy components of a checkpoint: orderer, placer, sizer, and scorer of the extender.

Each component asks one network of a :class:`~bireme.rl.checkpoint.Checkpoint` (CheckpointError
where it has none) and raises AnswerError where that gives no valid answer in time; the rules then
decide in the same cycle. A sizer's network may also *choose*: then it serves as all three parts,
and answers once per snapshot (:class:`Chooser`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from bireme.core.finished_runs import NO_RUNS, FinishedRuns
from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import PARTS, Orderer, PartName, Placer, Ranked, ScoreQuestion, Sizer
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing, fill, place_by
from bireme.heuristics.ranking import SortKey, rank_by, with_delay
from bireme.onnx.cards import Card
from bireme.onnx.errors import AnswerError, CheckpointError
from bireme.rl import encoders
from bireme.rl.checkpoint import Checkpoint, SizePart
from bireme.rl.protocols import ChoiceEncoder, Choices, SizeEncoder

ORDERER_LIMIT_SECONDS: Final = 1.0
PLACER_LIMIT_SECONDS: Final = 0.5
"""For one task."""
CHOOSER_LIMIT_SECONDS: Final = 1.0
"""For all answers of a cycle together."""
SCORER_LIMIT_SECONDS: Final = 0.5
"""kube-scheduler waits two seconds for the extender."""
_RANKS: Final = 10
"""kube-scheduler takes whole points from 0 to 10."""
_PACKING: Final = Packing()
_Found = TypeVar("_Found")


def _required(part: _Found | None, name: PartName, checkpoint: Checkpoint) -> _Found:
    if part is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.card.name!r} has no {name}; name one that has, or a rule"
        )
    return part


# --- orderers ---------------------------------------------------------------------------------


class ScoredOrderer(ABC):
    """Base of orderers that give each gang a score: the highest goes first.

    With ``stops_others`` the score is also the preemption priority; without it no gang is stopped.
    A gang stops none before it has waited for ``preemption_cost_seconds``. Ties:
    interrupted first, then arrival, uid.
    """

    stops_others: bool

    @abstractmethod
    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Return a score for each of ``gangs``, of which there is at least one."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        if not gangs:
            return []
        # A gang may run and wait at once, with members that came later: two entries of one uid.
        known = sorted(gangs, key=lambda gang: (gang.uid, gang.arrived))
        answer = self.scores(known, snapshot)
        scores = {id(gang): score for gang, score in zip(known, answer, strict=True)}
        delay_seconds = snapshot.settings.preemption_cost_seconds

        def sort_key(gang: Gang) -> SortKey:
            score = scores[id(gang)]
            if not self.stops_others:
                return SortKey((-score,), score)
            return with_delay(SortKey((-score,), score, score), gang, snapshot, delay_seconds)

        return rank_by(gangs, sort_key)

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Return the lowest score of ``gangs``; infinite if no gang may be stopped."""
        if not gangs or not self.stops_others:
            return math.inf
        return min(self.scores(gangs, snapshot))


class LearnedOrderer(ScoredOrderer):
    """Orders by the scores of a checkpoint's network; in a cluster without nodes all are 0."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _required(checkpoint.orderer, "orderer", checkpoint)
        self.stops_others = self._part.card.stops_others
        self.keeps_equal_gangs_in_order = bool(
            getattr(self._part.encoder, "keeps_equal_gangs_in_order", False)
        )

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Return the network's scores; raises AnswerError if it gives none that are valid."""
        if not len(snapshot.nodes):
            return [0.0] * len(gangs)  # nothing can start, and networks expect nodes
        found: list[float] = self._part.scores(gangs, snapshot, ORDERER_LIMIT_SECONDS).tolist()
        return found


# --- placers ----------------------------------------------------------------------------------


class LearnedPlacer:
    """Puts each task on the nodes of highest affinity, filled one after the other.

    The network judges nodes for one task at a time. What fits, that a gang starts whole and that
    its roles meet where they must is left to :mod:`bireme.heuristics.packing`. Ties: the node with
    the least free capacity, then by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._part = _required(checkpoint.placer, "placer", checkpoint)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Place as if no run had ended: without a snapshot none is known."""
        return self.place_after(NO_RUNS, gang, capacity)

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """Return the placer that knows the finished runs of ``snapshot``."""
        return _AfterRuns(self, snapshot.finished_runs)

    def place_after(
        self, finished: FinishedRuns, gang: Gang, capacity: FreeCapacity
    ) -> Placement | None:
        """Return nodes for all replicas, or None; raises AnswerError as the network does."""
        taken: dict[Role, IntArray] = {}

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            affinities = self._part.affinities(
                gang, task, capacity, taken, finished, PLACER_LIMIT_SECONDS
            )
            # rounded, so that equally tight nodes stay in the order of their names
            order = np.lexsort((capacity.tightness.round(9), -affinities))
            counts = fill(room, task.replicas, order)
            rows = np.repeat(np.arange(len(counts)), counts)
            taken[task.role] = np.concatenate([taken.get(task.role, rows[:0]), rows])
            return counts

        return place_by(gang, capacity, divide)


@dataclass(frozen=True, slots=True)
class _AfterRuns:
    """The placer of one snapshot."""

    placer: LearnedPlacer
    finished: FinishedRuns

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        return self.placer.place_after(self.finished, gang, capacity)


# --- choosers ---------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """The answer for the gangs of ``uids``: choices, or the fault of one that is not valid."""

    uids: tuple[str, ...]
    found: Choices | str


class Chooser:
    """Asks a checkpoint which gangs start, with which sizes and in which node pools.

    The answer is kept with the snapshot, so that orderer, placer and sizer of one policy read the
    same one. Only waiting gangs are chosen; none is stopped.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError if ``checkpoint`` has no sizer that chooses."""
        if checkpoint.sizer is None or not checkpoint.sizer.is_chooser:
            raise CheckpointError(
                f"checkpoint {checkpoint.card.name!r} chooses no gangs and no node pools; name one "
                "that does, or a rule"
            )
        self._part: SizePart = checkpoint.sizer
        self._key = "choices", checkpoint.sha256

    def choices(self, gangs: Iterable[Gang], snapshot: ClusterSnapshot) -> Choices:
        """Return the choices among those of ``gangs`` that wait; once AnswerError, always so."""
        waiting = [gang for gang in gangs if not _runs(gang, snapshot)]
        uids = tuple(sorted(gang.uid for gang in waiting))
        answer = snapshot.memo.get(self._key)
        # a sizer may be asked about other gangs than the orderer was
        if not isinstance(answer, _Answer) or answer.uids != uids:
            answer = snapshot.memo[self._key] = _Answer(uids, self._asked(waiting, snapshot))
        return _valid(answer)

    def known(self, snapshot: ClusterSnapshot) -> Choices:
        """Return the last choices in ``snapshot``; if there are none, ask about all sound gangs."""
        answer = snapshot.memo.get(self._key)
        if not isinstance(answer, _Answer):
            sound = [g for g in snapshot.waiting if g.fault is None and not g.flaw]
            return self.choices(sound, snapshot)
        return _valid(answer)

    def _asked(self, waiting: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices | str:
        if not waiting or not len(snapshot.nodes):  # networks expect at least one of each
            return Choices()
        try:
            return self._part.choices(waiting, snapshot, CHOOSER_LIMIT_SECONDS)
        except AnswerError as error:
            # Kept, for the other parts must not ask again; as text: an error's traceback would
            # hold the snapshot.
            return str(error)


def _valid(answer: _Answer) -> Choices:
    if isinstance(answer.found, str):
        raise AnswerError(answer.found)
    return answer.found


def _runs(gang: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``gang`` itself holds places, and not only an earlier part of the same uid."""
    running = snapshot.running_by_uid.get(gang.uid)
    return running is not None and running.gang is gang


class ChosenOrderer:
    """Orders chosen gangs as they were chosen, then all others by arrival.

    Running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.chooser = Chooser(checkpoint)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Order; scores count down from the number of chosen gangs and are 0 for all others."""
        chosen = self.chooser.choices(gangs, snapshot).order
        scores = {uid: float(len(chosen) - place) for place, uid in enumerate(chosen)}

        def sort_key(gang: Gang) -> SortKey:
            score = 0.0 if _runs(gang, snapshot) else scores.get(gang.uid, 0.0)
            return SortKey((-score,), score)

        return rank_by(gangs, sort_key)

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        return math.inf


class ChosenPlacer:
    """Packs a gang into the node pool that was chosen for it, or anywhere if it does not fit."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.chooser = Chooser(checkpoint)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Pack anywhere: without a snapshot nothing is chosen."""
        return _PACKING.place(gang, capacity)

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """Return the placer for the gangs of ``snapshot``."""
        return _InChosenPools(self.chooser, snapshot)


@dataclass(frozen=True, slots=True)
class _InChosenPools:
    """The placer of one snapshot; raises AnswerError as its chooser does."""

    chooser: Chooser
    snapshot: ClusterSnapshot

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        pool = self.chooser.known(self.snapshot).pools.get(gang.uid)
        if pool is not None:
            placement = _PACKING.place(gang, capacity.inside(pool))
            if placement is not None:
                return placement
        return _PACKING.place(gang, capacity)


# --- sizers -----------------------------------------------------------------------------------


class LearnedSizer:
    """Sizes elastic gangs by a checkpoint's network; those it leaves out go by the general rule."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _required(checkpoint.sizer, "sizer", checkpoint)
        self._chooser = Chooser(checkpoint) if self._part.is_chooser else None

    @property
    def encoder(self) -> SizeEncoder | ChoiceEncoder:
        """What turns gangs into arrays, with its parameters."""
        return self._part.encoder

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Return replicas by uid and task; raises AnswerError if the network's are not valid."""
        if not ranked or not len(snapshot.nodes):
            return {}
        if self._chooser is not None:
            return self._chooser.choices([e.gang for e in ranked], snapshot).sizes
        return self._part.sizes(ranked, snapshot, CHOOSER_LIMIT_SECONDS)


# --- scorers ----------------------------------------------------------------------------------


class LearnedScorer:
    """Scores nodes for one more replica, for the extender's ``prioritize``.

    Affinities only mean an order, so scores are ranks among the candidates: 1 for the highest
    affinity, one tenth less for each lower one, down to 0. Equal affinities score alike.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _required(checkpoint.placer, "placer", checkpoint)

    def score(self, question: ScoreQuestion) -> FloatArray:
        """Return scores in [0, 1], float64, shape (candidates,)."""
        if not len(question.rows):
            return np.zeros(0)
        # the extender knows the pod's task alone, not the gang
        gang = Gang("", question.task.name, "", "", (question.task,), arrived=0.0)
        affinities = self._part.affinities(
            gang, question.task, question.capacity, question.peers, NO_RUNS, SCORER_LIMIT_SECONDS
        )
        asked = affinities[question.rows]
        best = np.unique(asked)[-_RANKS:]
        rank = len(best) - np.searchsorted(best, asked, side="right")
        return np.where(asked < best[0], 0.0, 1.0 - rank / _RANKS)


# --- components of a checkpoint ---------------------------------------------------------------


def served(card: Card) -> tuple[PartName, ...]:
    """Return the parts of a policy that the checkpoint of ``card`` can be.

    Raises:
        CheckpointError: it asks for an encoder that this Bireme does not have.
    """
    sizer = card.parts.sizer
    if sizer is not None and isinstance(encoders.make("sizer", sizer.encoder), ChoiceEncoder):
        return PARTS
    return tuple(card.parts.by_name())


def component_of(
    checkpoint: Checkpoint, name: PartName, parameters: str = ""
) -> Orderer | Placer | Sizer:
    """Make the component of ``checkpoint`` that serves as ``name``.

    ``parameters`` are those of its encoder, as text: ``beta=0.0001``.

    Raises:
        CheckpointError: it has none.
        SettingError: as :meth:`~bireme.rl.checkpoint.Checkpoint.with_parameters`.
    """
    checkpoint = checkpoint.with_parameters(name, parameters)
    chooses = checkpoint.sizer is not None and checkpoint.sizer.is_chooser
    if name == "orderer":
        is_chosen = checkpoint.orderer is None and chooses
        return ChosenOrderer(checkpoint) if is_chosen else LearnedOrderer(checkpoint)
    if name == "placer":
        is_chosen = checkpoint.placer is None and chooses
        return ChosenPlacer(checkpoint) if is_chosen else LearnedPlacer(checkpoint)
    return LearnedSizer(checkpoint)
