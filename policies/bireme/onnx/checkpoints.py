"""Files of a checkpoint: a folder with a card and one ONNX file per network.

A checkpoint may be untrusted. Its size and sha256 are checked before any byte is interpreted; then
the graph is inspected (:mod:`bireme.onnx.graphs`). :mod:`bireme.rl.checkpoint` makes policies of
these files, :mod:`bireme.forecasting.networks` makes forecasters.
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
    """Return the card in ``folder`` and its sha256, without a check of the parts.

    Raises:
        CheckpointError: the card is missing, unreadable, invalid, or not the expected one.
    """
    path = folder / cards.CARD_FILE
    text = read_file(folder, cards.CARD_FILE, cards.MAX_CARD_BYTES)
    # Check the digest before decoding, so that nothing of another card is interpreted.
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
    """Return a session of the network in ``model``, which must match ``part``.

    Args:
        inputs: Shapes by name, from the encoder of the part.
        output: Name and axis of the answer.
        where: The beginning of error texts.

    Raises:
        CheckpointError: the network is another one, or unsafe.
    """
    for what, actual, stated in (
        ("size in bytes", len(model), part.bytes),
        ("sha256", sha256(model).hexdigest(), part.sha256),
    ):
        if actual != stated:
            raise CheckpointError(
                f"{where}: its {what} is {actual}, the card says {stated}; copy the whole "
                "checkpoint again"
            )
    # Inspect before ONNX Runtime sees a byte of the file.
    inspect(model, part, inputs, output, where)
    return Session(model, inputs, output, where)


def read_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """Return the file ``name`` in ``folder``, or one byte more than ``max_bytes`` of it.

    Raises:
        CheckpointError: the folder has no such plain file, or it cannot be read.
    """
    path = folder / name
    try:
        # A link may lead anywhere, and the author of the folder may be untrusted.
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(folder.resolve(strict=True)):
            raise CheckpointError(f"{path} leads out of its folder, to {resolved}; copy it there")
        if not resolved.is_file():  # reading a pipe would block for ever
            raise CheckpointError(f"{path} is no plain file; copy the whole checkpoint again")
        with resolved.open("rb") as file:
            # One extra byte shows that a file is too large, without reading all of it.
            content = file.read(max_bytes + 1)
    # Before Python 3.13 a circle of links raises RuntimeError.
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; name the folder of a whole checkpoint"
        ) from error
    if name == cards.CARD_FILE and len(content) > max_bytes:
        raise CheckpointError(
            f"{path} is larger than {max_bytes} bytes; name a checkpoint's folder"
        )
    return content
