"""Files of a checkpoint: a folder with a card and one ONNX file per network.

A checkpoint need not be trusted: size and sha256 are checked before any byte is interpreted, then
the graph is inspected (:mod:`bireme.onnx.graphs`). :mod:`bireme.rl.checkpoint` makes policies of
these files, :mod:`bireme.forecasting.networks` forecasters.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from bireme.onnx import cards
from bireme.onnx.cards import Card, PartCard
from bireme.onnx.errors import CheckpointError
from bireme.onnx.graphs import inspect
from bireme.onnx.sessions import Session, Shape


def read_card(folder: Path, expected_sha256: str | None = None) -> tuple[Card, str]:
    """Return the card in ``folder`` and its sha256; the parts are not looked at.

    Raises:
        CheckpointError: it is missing, unreadable, no card, or not the expected one.
    """
    path = folder / cards.CARD_FILE
    text = read_file(folder, cards.CARD_FILE, cards.MAX_CARD_BYTES)
    # Before it is decoded: of a card that is not the expected one nothing is interpreted.
    digest = sha256(text).hexdigest()
    if expected_sha256 is not None and digest != expected_sha256:
        raise CheckpointError(
            f"{path}: its sha256 is {digest}, expected is {expected_sha256}; put the checkpoint "
            "there that was meant, or correct the expected sha256"
        )
    return cards.decode(text, path), digest


def open_session(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str], where: str
) -> Session:
    """Return a session of the network in ``model``, if it is the one that ``part`` states.

    Args:
        inputs: Shapes by name, as the encoder of the part gives them.
        output: Name and axis of the answer.
        where: What error texts begin with.

    Raises:
        CheckpointError: it is another network, or an unsafe one.
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
    # Before ONNX Runtime is given a byte of it.
    inspect(model, part, inputs, output, where)
    return Session(model, inputs, output, where)


def read_file(folder: Path, name: str, most_bytes: int) -> bytes:
    """Return the file ``name`` in ``folder``, or one byte more than ``most_bytes`` of it.

    Raises:
        CheckpointError: there is no such plain file in that folder, or it cannot be read.
    """
    path = folder / name
    try:
        # A link may lead anywhere, and the one who made the folder need not be trusted.
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(folder.resolve(strict=True)):
            raise CheckpointError(f"{path} leads out of its folder, to {resolved}; copy it there")
        if not resolved.is_file():  # to read a pipe would wait for ever
            raise CheckpointError(f"{path} is no plain file; copy the whole checkpoint again")
        with resolved.open("rb") as file:
            # By one byte more a file is known to be too large, without reading all of it.
            found = file.read(most_bytes + 1)
    # RuntimeError is a circle of links, before Python 3.13.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; name the folder of a whole checkpoint"
        ) from error
    if name == cards.CARD_FILE and len(found) > most_bytes:
        raise CheckpointError(
            f"{path} is larger than {most_bytes} bytes; name a checkpoint's folder"
        )
    return found
