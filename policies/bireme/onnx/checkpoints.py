"""Checkpoints: a folder with a card and one network per part, which nobody has to trust.

What is loaded is what the card states and nothing else: its size and sha256 are checked before any
byte is interpreted, then the graph is inspected (:mod:`bireme.onnx.graphs`), then encoder and
network answer a rehearsal. Whatever fails is a CheckpointError that names it; nothing is ever
written, and nothing that is read can run code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.errors import installing, told
from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx import cards
from bireme.onnx.cards import Card, PartCard
from bireme.onnx.errors import CheckpointError
from bireme.onnx.graphs import inspect, rehearsals
from bireme.onnx.sessions import Session
from bireme.rl import encoders
from bireme.rl.protocols import (
    GANGS,
    MOVES,
    NODES,
    ChoiceEncoder,
    Choices,
    OrderEncoder,
    PlaceEncoder,
    Shape,
    SizeEncoder,
)

SCORES: Final = ("scores", GANGS)
"""Name and axis of an orderer's answer: the highest starts first."""
AFFINITIES: Final = ("affinities", NODES)
"""Name and axis of a placer's answer: the highest is taken first."""
LOGITS: Final = ("logits", MOVES)
"""Name and axis of a sizer's answer; what a logit is worth is for its encoder to say."""
_REHEARSAL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OrderPart:
    """A network that orders gangs, with its encoder."""

    card: PartCard
    encoder: OrderEncoder
    session: Session

    def scores(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> FloatArray:
        """Finite, shape (gangs,), of at least one; raises AnswerError as the session does."""
        arrays = self.encoder.encode(gangs, snapshot)
        return self.session.answer(arrays, len(gangs), limit_seconds)


@dataclass(frozen=True, slots=True)
class PlacePart:
    """A network that judges nodes, with its encoder."""

    card: PartCard
    encoder: PlaceEncoder
    session: Session

    def affinities(
        self,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        limit_seconds: float,
    ) -> FloatArray:
        """Finite, shape (nodes,), of at least one; raises AnswerError as the session does."""
        arrays = self.encoder.encode(gang, task, capacity, peers)
        return self.session.answer(arrays, len(capacity.nodes), limit_seconds)


@dataclass(frozen=True, slots=True)
class SizePart:
    """A network that sizes gangs, or chooses them, with its encoder."""

    card: PartCard
    encoder: SizeEncoder | ChoiceEncoder
    session: Session

    @property
    def is_chooser(self) -> bool:
        """Whether it also says who starts, in which order and in which node pool."""
        return isinstance(self.encoder, ChoiceEncoder)

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> Mapping[str, Mapping[str, int]]:
        """As :meth:`bireme.core.policy.Sizer.sizes`; raises AnswerError as the session does."""
        assert isinstance(self.encoder, SizeEncoder)  # noqa: S101  # choosers are asked to choose
        return self.encoder.sizes(self.session.within(limit_seconds), ranked, snapshot)

    def choices(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot, limit_seconds: float
    ) -> Choices:
        """What a chooser does with ``gangs``, which wait; raises AnswerError as the session."""
        assert isinstance(self.encoder, ChoiceEncoder)  # noqa: S101  # nobody else is asked
        in_line = sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
        return self.encoder.chooses(self.session.within(limit_seconds), in_line, snapshot)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        sha256: Of the card, which holds that of every part: the checkpoint's name in records.
        orderer, placer, sizer: Its parts; at least one.
    """

    card: Card
    sha256: str
    orderer: OrderPart | None
    placer: PlacePart | None
    sizer: SizePart | None


def read_card(folder: Path, expected_sha256: str | None = None) -> tuple[Card, str]:
    """The card in ``folder`` and its sha256; the parts are not looked at.

    Raises:
        CheckpointError: it is missing, unreadable, no card, or not the expected one.
    """
    path = folder / cards.CARD_FILE
    text = read_file(folder, cards.CARD_FILE, cards.MOST_CARD_BYTES)
    digest = sha256(text).hexdigest()
    if expected_sha256 is not None and digest != expected_sha256:
        raise CheckpointError(
            f"{path}: its sha256 is {digest}, expected is {expected_sha256}; put the checkpoint "
            "there that was meant, or correct the expected sha256"
        )
    return cards.decode(text, path), digest


def load(folder: Path, expected_sha256: str | None = None) -> Checkpoint:
    """The checkpoint in ``folder``, tried and warm.

    Raises:
        CheckpointError: it cannot be used, or what reads it (the extra ``serve``) is not installed.
    """
    card, digest = read_card(folder, expected_sha256)
    try:
        checkpoint = _loaded(folder, card, digest)
        _rehearse(checkpoint)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except ImportError as error:
        raise CheckpointError(f"{folder}: {error}; {installing('serve')}") from error
    return checkpoint


def _loaded(folder: Path, card: Card, digest: str) -> Checkpoint:
    orderer = placer = sizer = None
    if part := card.parts.orderer:
        gangs = encoders.order_encoder(part.encoder)
        orderer = OrderPart(part, gangs, _session(folder, card, part, gangs.inputs, SCORES))
    if part := card.parts.placer:
        nodes = encoders.place_encoder(part.encoder)
        placer = PlacePart(part, nodes, _session(folder, card, part, nodes.inputs, AFFINITIES))
    if part := card.parts.sizer:
        moves = encoders.size_encoder(part.encoder)
        sizer = SizePart(part, moves, _session(folder, card, part, moves.inputs, LOGITS))
    return Checkpoint(card, digest, orderer, placer, sizer)


def _session(
    folder: Path, card: Card, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str]
) -> Session:
    where = f"{card.name}/{part.file}"
    return session_of(read_file(folder, part.file, part.bytes), part, inputs, output, where)


def session_of(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str], where: str
) -> Session:
    """The network in ``model``, if it is the one that ``part`` states.

    Raises:
        CheckpointError: it is not; the text begins with ``where``.
    """
    for what, found, stated in (
        ("size in bytes", len(model), part.bytes),
        ("sha256", sha256(model).hexdigest(), part.sha256),
    ):
        if found != stated:
            raise CheckpointError(
                f"{where}: its {what} is {found}, the card says {stated}; copy the whole "
                "checkpoint again"
            )
    inspect(model, part, inputs, output, where)
    return Session(model, inputs, output, where)


def read_file(folder: Path, name: str, most_bytes: int) -> bytes:
    """The file ``name`` in ``folder``, or one byte more than ``most_bytes`` of it.

    Raises:
        CheckpointError: there is no such plain file in that folder, or it cannot be read.
    """
    path = folder / name
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(folder.resolve(strict=True)):
            raise CheckpointError(f"{path} leads out of its folder, to {resolved}; copy it there")
        if not resolved.is_file():  # to read a pipe would wait for ever
            raise CheckpointError(f"{path} is no plain file; copy the whole checkpoint again")
        with resolved.open("rb") as file:
            found = file.read(most_bytes + 1)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; name the folder of a whole checkpoint"
        ) from error
    if name == cards.CARD_FILE and len(found) > most_bytes:
        raise CheckpointError(
            f"{path} is larger than {most_bytes} bytes; name a checkpoint's folder"
        )
    return found


def _rehearse(checkpoint: Checkpoint) -> None:
    """Ask every part once for each rehearsal; CheckpointError where one gives no valid answer."""
    for gangs, snapshot in rehearsals():
        try:
            if checkpoint.orderer is not None:
                checkpoint.orderer.scores(gangs, snapshot, _REHEARSAL_SECONDS)
            if checkpoint.placer is not None:
                _try_places(checkpoint.placer, gangs[0], snapshot)
            if checkpoint.sizer is not None:
                _try_sizes(checkpoint.sizer, gangs, snapshot)
        except Exception as error:
            raise CheckpointError(
                f"the trial run failed: {told(error)}; train or export it again"
            ) from error


def _try_places(part: PlacePart, gang: Gang, snapshot: ClusterSnapshot) -> None:
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)
    for task in gang.tasks:
        peers = {Role.PS: np.zeros(1, dtype=np.int64)}
        part.affinities(gang, task, capacity, peers, _REHEARSAL_SECONDS)


def _try_sizes(part: SizePart, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> None:
    if part.is_chooser:
        part.choices(snapshot.waiting, snapshot, _REHEARSAL_SECONDS)
    else:
        part.sizes([Ranked(gang, 0.0) for gang in gangs], snapshot, _REHEARSAL_SECONDS)
