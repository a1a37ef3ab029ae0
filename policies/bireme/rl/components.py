"""Policy components of a checkpoint: orderer, placer, sizer, and scorer of the extender.

Each component asks one network of a :class:`~bireme.rl.checkpoint.Checkpoint` and raises
CheckpointError if the checkpoint has none. Without a valid answer in time it raises AnswerError,
and the rules decide in the same cycle. A sizer's network may also *choose*. Then it serves as all
three parts and answers once per snapshot (:class:`Chooser`).
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
"""The limit for one task."""
CHOOSER_LIMIT_SECONDS: Final = 1.0
"""The limit for all answers of a cycle together."""
SCORER_LIMIT_SECONDS: Final = 0.5
"""kube-scheduler waits two seconds for the extender."""
_RANKS: Final = 10
"""kube-scheduler takes whole points from 0 to 10."""
_PACKING: Final = Packing()
_PartT = TypeVar("_PartT")


def _require(part: _PartT | None, name: PartName, checkpoint: Checkpoint) -> _PartT:
    if part is None:
        raise CheckpointError(
            f"checkpoint {checkpoint.card.name!r} has no {name}; name one that has, or a rule"
        )
    return part


# --- orderers ---------------------------------------------------------------------------------


class ScoredOrderer(ABC):
    """Base of orderers that give each gang a score: the highest goes first.

    With ``stops_others`` the score is also the preemption priority; without it no gang is stopped.
    A gang preempts only after it has waited for ``preemption_cost_seconds``. Ties: interrupted
    first, then arrival, uid.
    """

    stops_others: bool

    @abstractmethod
    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Return a score for each of at least one ``gangs``."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        if not gangs:
            return []
        # A gang with later members may run and wait at once: then two entries have one uid.
        by_uid = sorted(gangs, key=lambda gang: (gang.uid, gang.arrived))
        answer = self.scores(by_uid, snapshot)
        scores = {id(gang): score for gang, score in zip(by_uid, answer, strict=True)}
        delay_seconds = snapshot.settings.preemption_cost_seconds

        def sort_key(gang: Gang) -> SortKey:
            score = scores[id(gang)]
            if not self.stops_others:
                return SortKey((-score,), score)
            return with_delay(SortKey((-score,), score, score), gang, snapshot, delay_seconds)

        return rank_by(gangs, sort_key)

    def lowest_preemption_priority(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> float:
        """Return the lowest score of ``gangs``; infinite if no gang may be preempted."""
        if not gangs or not self.stops_others:
            return math.inf
        return min(self.scores(gangs, snapshot))


class LearnedOrderer(ScoredOrderer):
    """Orders by the scores of a checkpoint's network; in a cluster without nodes all are 0."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _require(checkpoint.orderer, "orderer", checkpoint)
        self.stops_others = self._part.card.stops_others
        self.keeps_equal_gangs_in_order = bool(
            getattr(self._part.encoder, "keeps_equal_gangs_in_order", False)
        )

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """Return the network's scores; raises AnswerError for invalid ones."""
        if not len(snapshot.nodes):
            return [0.0] * len(gangs)  # no gang can start, and networks expect nodes
        values: list[float] = self._part.scores(gangs, snapshot, ORDERER_LIMIT_SECONDS).tolist()
        return values


# --- placers ----------------------------------------------------------------------------------


class LearnedPlacer:
    """Puts each task on the nodes of highest affinity, filled one after the other.

    The network judges nodes for one task at a time. :mod:`bireme.heuristics.packing` checks the
    capacity, starts the gang whole and keeps the affinity of its roles. Ties: the node with the
    least free capacity, then by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._part = _require(checkpoint.placer, "placer", checkpoint)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Place without finished runs, because only a snapshot has them."""
        return self.place_after(NO_RUNS, gang, capacity)

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """Return the placer that knows the finished runs of ``snapshot``."""
        return _AfterRuns(self, snapshot.finished_runs)

    def place_after(
        self, finished: FinishedRuns, gang: Gang, capacity: FreeCapacity
    ) -> Placement | None:
        """Return nodes for all replicas, or None; raises AnswerError for an invalid answer."""
        rows_by_role: dict[Role, IntArray] = {}

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            affinities = self._part.affinities(
                gang, task, capacity, rows_by_role, finished, PLACER_LIMIT_SECONDS
            )
            # round, so that equally tight nodes stay in the order of their names
            order = np.lexsort((capacity.tightness.round(9), -affinities))
            counts = fill(room, task.replicas, order)
            rows = np.repeat(np.arange(len(counts)), counts)
            rows_by_role[task.role] = np.concatenate([rows_by_role.get(task.role, rows[:0]), rows])
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
    """The answer for the gangs of ``uids``: choices, or the fault of an invalid answer."""

    uids: tuple[str, ...]
    result: Choices | str


class Chooser:
    """Asks a checkpoint for the gangs that start, with their sizes and node pools.

    The snapshot caches the answer, so that orderer, placer and sizer of one policy read the same
    one. The network chooses only waiting gangs and stops none.
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
        """Return the choices among the waiting ``gangs``; raises the same AnswerError again."""
        waiting = [gang for gang in gangs if not _runs(gang, snapshot)]
        uids = tuple(sorted(gang.uid for gang in waiting))
        answer = snapshot.memo.get(self._key)
        # a sizer may get other gangs than the orderer
        if not isinstance(answer, _Answer) or answer.uids != uids:
            answer = snapshot.memo[self._key] = _Answer(uids, self._ask(waiting, snapshot))
        return _valid(answer)

    def last_choices(self, snapshot: ClusterSnapshot) -> Choices:
        """Return the last choices in ``snapshot``; without any, ask about all sound gangs."""
        answer = snapshot.memo.get(self._key)
        if not isinstance(answer, _Answer):
            sound = [g for g in snapshot.waiting if g.fault is None and not g.flaw]
            return self.choices(sound, snapshot)
        return _valid(answer)

    def _ask(self, waiting: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices | str:
        if not waiting or not len(snapshot.nodes):  # networks expect at least one of each
            return Choices()
        try:
            return self._part.choices(waiting, snapshot, CHOOSER_LIMIT_SECONDS)
        except AnswerError as error:
            # Cache the fault, so that other parts do not ask again. Cache its text, because an
            # error's traceback would keep the snapshot alive.
            return str(error)


def _valid(answer: _Answer) -> Choices:
    if isinstance(answer.result, str):
        raise AnswerError(answer.result)
    return answer.result


def _runs(gang: Gang, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``gang`` itself runs, not only an earlier part with the same uid."""
    running = snapshot.running_by_uid.get(gang.uid)
    return running is not None and running.gang is gang


class ChosenOrderer:
    """Orders chosen gangs in the order of the choices, then all others by arrival.

    Running gangs are never stopped. Ties: interrupted first, then arrival, uid.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.chooser = Chooser(checkpoint)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Order; scores count down from the number of chosen gangs and are 0 for all others."""
        uids = self.chooser.choices(gangs, snapshot).order
        scores = {uid: float(len(uids) - place) for place, uid in enumerate(uids)}

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
        """Pack anywhere, because only a snapshot has choices."""
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
        pool = self.chooser.last_choices(self.snapshot).pools.get(gang.uid)
        if pool is not None:
            placement = _PACKING.place(gang, capacity.inside(pool))
            if placement is not None:
                return placement
        return _PACKING.place(gang, capacity)


# --- sizers -----------------------------------------------------------------------------------


class LearnedSizer:
    """Sizes elastic gangs by a checkpoint's network; those it leaves out go by the general rule."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _require(checkpoint.sizer, "sizer", checkpoint)
        self._chooser = Chooser(checkpoint) if self._part.is_chooser else None

    @property
    def encoder(self) -> SizeEncoder | ChoiceEncoder:
        """The encoder of gangs into arrays, with its parameters."""
        return self._part.encoder

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Return replicas by uid and task; raises AnswerError for an invalid answer."""
        if not ranked or not len(snapshot.nodes):
            return {}
        if self._chooser is not None:
            return self._chooser.choices([e.gang for e in ranked], snapshot).sizes
        return self._part.sizes(ranked, snapshot, CHOOSER_LIMIT_SECONDS)


# --- scorers ----------------------------------------------------------------------------------


class LearnedScorer:
    """Scores nodes for one more replica, for the extender's ``prioritize``.

    Affinities only define an order, so scores are ranks among the candidates: 1 for the highest
    affinity, one tenth less for each lower one, down to 0. Equal affinities have equal scores.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._part = _require(checkpoint.placer, "placer", checkpoint)

    def score(self, question: ScoreQuestion) -> FloatArray:
        """Return scores in [0, 1], float64, shape (candidates,)."""
        if not len(question.rows):
            return np.zeros(0)
        # the extender knows only the pod's task, not the gang
        gang = Gang("", question.task.name, "", "", (question.task,), arrived=0.0)
        affinities = self._part.affinities(
            gang, question.task, question.capacity, question.peers, NO_RUNS, SCORER_LIMIT_SECONDS
        )
        candidates = affinities[question.rows]
        best = np.unique(candidates)[-_RANKS:]
        rank = len(best) - np.searchsorted(best, candidates, side="right")
        return np.where(candidates < best[0], 0.0, 1.0 - rank / _RANKS)


# --- components of a checkpoint ---------------------------------------------------------------


def parts_of(card: Card) -> tuple[PartName, ...]:
    """Return the parts of a policy that the checkpoint of ``card`` can serve.

    Raises:
        CheckpointError: the card names an encoder that this Bireme does not have.
    """
    sizer = card.parts.sizer
    if sizer is not None and isinstance(encoders.make("sizer", sizer.encoder), ChoiceEncoder):
        return PARTS
    return tuple(card.parts.by_name())


def component_of(
    checkpoint: Checkpoint, name: PartName, parameters: str = ""
) -> Orderer | Placer | Sizer:
    """Make the component of ``checkpoint`` that serves as ``name``.

    ``parameters`` are the encoder's, as text: ``beta=0.0001``.

    Raises:
        CheckpointError: the checkpoint has no such component.
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
