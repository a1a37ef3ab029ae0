"""Checkpoints of learned policies: networks with their encoders, loaded and tested.

A checkpoint is a folder (:mod:`bireme.onnx.checkpoints`). Its card names an encoder of
:mod:`bireme.rl.encoders` for each network. Every part passes a smoke test on loading, so a faulty
part is refused before anything depends on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np

from bireme.core.errors import error_text, installing
from bireme.core.finished_runs import NO_RUNS, FinishedRuns
from bireme.core.gangs import Gang, Role, Task
from bireme.core.parameters import read_parameters
from bireme.core.placement import FreeCapacity
from bireme.core.policy import PartName, Ranked
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.cards import Card, PartCard
from bireme.onnx.checkpoints import open_session, read_card, read_file
from bireme.onnx.errors import CheckpointError
from bireme.onnx.sessions import Session
from bireme.rl import encoders
from bireme.rl.protocols import (
    AXES,
    ChoiceEncoder,
    Choices,
    OrderEncoder,
    PlaceEncoder,
    SizeEncoder,
)
from bireme.rl.smoke_test import smoke_cases

OUTPUTS: Final[Mapping[PartName, tuple[str, str]]] = {
    "orderer": ("scores", AXES["orderer"]),  # the highest starts first
    "placer": ("affinities", AXES["placer"]),  # the highest is taken first
    "sizer": ("logits", AXES["sizer"]),  # the encoder defines the meaning of a logit
}
"""Name and axis of each part's answer."""
_SMOKE_TEST_SECONDS: Final = 5.0


_Encoder = TypeVar("_Encoder")


@dataclass(frozen=True, slots=True)
class _Part(Generic[_Encoder]):
    """A network with its encoder."""

    card: PartCard
    encoder: _Encoder
    session: Session


class OrderPart(_Part[OrderEncoder]):
    """A network that orders gangs."""

    def scores(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> FloatArray:
        """Return finite scores of at least one gang, shape (gangs,); raises AnswerError."""
        arrays = self.encoder.encode(gangs, snapshot)
        return self.session.answer(arrays, len(gangs), limit_seconds)


class PlacePart(_Part[PlaceEncoder]):
    """A network that judges nodes."""

    def affinities(
        self,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        finished: FinishedRuns,
        limit_seconds: float,
    ) -> FloatArray:
        """Return finite affinities of at least one node, shape (nodes,); raises AnswerError."""
        arrays = self.encoder.encode(gang, task, capacity, peers, finished)
        return self.session.answer(arrays, len(capacity.nodes), limit_seconds)


class SizePart(_Part[SizeEncoder | ChoiceEncoder]):
    """A network that sizes gangs or chooses them."""

    @property
    def is_chooser(self) -> bool:
        """Whether it also chooses which gangs start, in which order and node pool."""
        return isinstance(self.encoder, ChoiceEncoder)

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> Mapping[str, Mapping[str, int]]:
        """Return sizes as :meth:`bireme.core.policy.Sizer.sizes`; raises AnswerError."""
        assert isinstance(self.encoder, SizeEncoder)  # noqa: S101  # a chooser has choices instead
        return self.encoder.sizes(self.session.within(limit_seconds), ranked, snapshot)

    def choices(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> Choices:
        """Choose among the waiting ``gangs``; raises AnswerError."""
        assert isinstance(self.encoder, ChoiceEncoder)  # noqa: S101  # checked by is_chooser
        in_line = sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
        return self.encoder.chooses(self.session.within(limit_seconds), in_line, snapshot)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        sha256: Digest of the card, which has the digest of every part; names it in records.
        orderer, placer, sizer: Its parts; at least one.
    """

    card: Card
    sha256: str
    orderer: OrderPart | None = None
    placer: PlacePart | None = None
    sizer: SizePart | None = None

    def with_parameters(self, part: PartName, values: str | Mapping[str, object]) -> Self:
        """Return the checkpoint with parameters for its encoder of ``part``.

        The encoder's class declares the parameters (:mod:`bireme.core.parameters`).

        Raises:
            SettingError: as :func:`~bireme.core.parameters.read_parameters`.
        """
        network: _Part[Any] | None = getattr(self, part)
        maker = object if network is None else type(network.encoder)
        parameters = read_parameters(maker, values)
        if network is None or not parameters:
            return self
        changed: dict[str, Any] = {part: replace(network, encoder=maker(**parameters))}
        return replace(self, **changed)


def load(folder: Path, expected_sha256: str | None = None) -> Checkpoint:
    """Load the checkpoint in ``folder`` and run the smoke test.

    Raises:
        CheckpointError: the checkpoint cannot be used, or the extra ``serve`` is not installed.
    """
    card, digest = read_card(folder, expected_sha256)
    kinds = {"orderer": OrderPart, "placer": PlacePart, "sizer": SizePart}
    parts: dict[str, Any] = {}
    try:  # every error names the folder: an operator may load several
        for name, part in card.parts.by_name().items():
            encoder, where = encoders.make(name, part.encoder), f"{card.name}/{part.file}"
            model = read_file(folder, part.file, part.bytes)
            session = open_session(model, part, encoder.inputs, OUTPUTS[name], where)
            parts[name] = kinds[name](part, encoder, session)
        checkpoint = Checkpoint(card, digest, **parts)
        _smoke_test(checkpoint)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except ImportError as error:
        raise CheckpointError(f"{folder}: {error}; {installing('serve')}") from error
    return checkpoint


def _smoke_test(checkpoint: Checkpoint) -> None:
    """Ask every part once per smoke case; CheckpointError for an invalid answer."""
    for gangs, snapshot in smoke_cases():
        try:
            _ask_all(checkpoint, gangs, snapshot, _SMOKE_TEST_SECONDS)
        except Exception as error:  # any fault of an encoder refuses the checkpoint
            raise CheckpointError(
                f"the smoke test failed: {error_text(error)}; train or export it again"
            ) from error


def _ask_all(
    checkpoint: Checkpoint, gangs: Sequence[Gang], snapshot: ClusterSnapshot, seconds: float
) -> None:
    orderer, placer, sizer = checkpoint.orderer, checkpoint.placer, checkpoint.sizer
    if orderer is not None:
        orderer.scores(gangs, snapshot, seconds)
    if placer is not None:
        capacity = FreeCapacity(snapshot.nodes, snapshot.used)
        peers = {Role.PS: np.zeros(1, dtype=np.int64)}  # as in score mode
        for task in gangs[0].tasks:
            placer.affinities(gangs[0], task, capacity, peers, NO_RUNS, seconds)
    if sizer is not None and sizer.is_chooser:
        sizer.choices(snapshot.waiting, snapshot, seconds)
    elif sizer is not None:
        sizer.sizes([Ranked(gang, 0.0) for gang in gangs], snapshot, seconds)
