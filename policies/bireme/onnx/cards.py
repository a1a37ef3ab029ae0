"""The card of a checkpoint: what it is, how it was made, how it did, and which files belong to it.

A card is JSON. Its sha256 names the checkpoint, because the card holds the sha256 of every part.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from bireme.core.policy import PartName
from bireme.onnx.errors import CheckpointError

CARD_FILE: Final = "card.json"
FORMAT: Final = 1
MOST_CARD_BYTES: Final = 256 * 1024
MOST_PART_BYTES: Final = 16 * 1024 * 1024

Text = Annotated[str, Meta(min_length=1)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.onnx$")]
Size = Annotated[int, Meta(ge=1)] | Text
Shapes = dict[Text, tuple[Size, ...]]
_T = TypeVar("_T")


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all parts of a card share: nothing changes, and nothing unknown is read."""


class Result(_Struct, frozen=True, kw_only=True):
    """What was reached in one setting, beside the best of its rivals.

    ``interval`` is that of 95 %, ``command`` measures it again.
    """

    setting: Text
    metric: Text
    value: float
    interval: tuple[float, float]
    rival: str
    rival_value: float
    command: str


class PartCard(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One network and how it is fed.

    Attributes:
        file: Its ONNX file, beside the card.
        sha256, bytes: Of that file.
        opset: Version of ONNX' operators that it is written in.
        encoder: Name and version of the encoder of its inputs.
        inputs, outputs: Shapes by name; a text is an axis whose size varies.
        stops_others: Whether an orderer's score is also what stopping others is judged by (see
            :class:`~bireme.core.policy.Ranked`). Such a score must not depend on waiting, nor on
            who else is there.
    """

    file: FileName
    sha256: Digest
    bytes: Annotated[int, Meta(ge=1, le=MOST_PART_BYTES)]
    opset: int
    encoder: Text
    inputs: Shapes
    outputs: Shapes
    stops_others: bool = False


class Parts(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The networks of a checkpoint; at least one."""

    orderer: PartCard | None = None
    placer: PartCard | None = None
    sizer: PartCard | None = None

    def by_name(self) -> dict[PartName, PartCard]:
        """Those that there are."""
        every: dict[PartName, PartCard | None] = {
            "orderer": self.orderer,
            "placer": self.placer,
            "sizer": self.sizer,
        }
        return {name: part for name, part in every.items() if part is not None}


class Made(_Struct, frozen=True, kw_only=True):
    """What every card tells: what was made, from what, and how well it does.

    Attributes:
        summary: What it does, in one sentence.
        made: The date, as 2026-11-21.
        command: What trains it again.
        data: What it was trained on, in words.
        training: Numbers of the training by name.
    """

    format: int = FORMAT
    name: Text
    summary: Text
    paper: str
    made: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    command: Text
    seeds: tuple[int, ...]
    data: Text
    training: dict[Text, float]
    results: tuple[Result, ...]


class Card(Made, frozen=True, kw_only=True):
    """Everything about a policy's checkpoint but its weights.

    ``steps`` and ``minutes`` are among the numbers of its training.
    """

    parts: Parts


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode(card: Made) -> bytes:
    """``card`` as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n"


def decode(text: bytes, where: object) -> Card:
    """The card written in ``text``; ``where`` says where that lies.

    Raises:
        CheckpointError: it is no card of this format.
    """
    card = decode_as(text, Card, where)
    if not card.parts.by_name():
        raise CheckpointError(f"{where}: parts is empty; give an orderer, a placer or a sizer")
    for key in ("steps", "minutes"):
        if key not in card.training:
            raise CheckpointError(f"{where}: training has no {key!r}; state how many")
    return card


def decode_as(text: bytes, kind: type[_T], where: object) -> _T:
    """The card of that ``kind`` in ``text``; raises CheckpointError as :func:`decode`."""
    version = _decoded(text, _Format, where).format
    if version != FORMAT:
        raise CheckpointError(
            f"{where}: format is {version}, this Bireme reads format {FORMAT}; export the "
            "checkpoint with this version of Bireme, or run the version that made it"
        )
    return _decoded(text, kind, where)


def _decoded(text: bytes, kind: type[_T], where: object) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"{where}: {error}{_value_at(text, str(error))}; correct the card, or export the "
            "checkpoint again"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{where} is no JSON: {error}; export the checkpoint again"
        ) from error


def _value_at(text: bytes, message: str) -> str:
    """What stands where ``message`` points, in words; empty where it points at nothing."""
    path = re.search(r"`\$((?:\.\w+|\[\d+\])+)`", message)
    if path is None:
        return ""
    try:
        value = msgspec.json.decode(text)
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path[1]):
            value = value[name] if name else value[int(index)]
    except (LookupError, TypeError, UnicodeDecodeError, msgspec.DecodeError):
        return ""
    return f" (it is {str(value)[:80]!r})"


# A checkpoint's card as text for a person.


def told(card: Card, sha256: str) -> str:
    """What the policy is, what it was trained on, how it did, and which files it consists of."""
    lines = [f"{card.name}: {card.summary}", ""]
    lines += [f"{what:<12}{text}" for what, text in _facts(card, sha256) if text]
    if card.results:
        lines += ["", "Results, with 95 % intervals:", *map(_result, card.results)]
        commands = dict.fromkeys(result.command for result in card.results)
        lines += ["Measured by:", *(f"  {command}" for command in commands)]
    for name, part in card.parts.by_name().items():
        lines += ["", *_part(name, part)]
    return "\n".join(lines) + "\n"


def _facts(card: Card, sha256: str) -> Iterator[tuple[str, str]]:
    yield "paper", card.paper
    yield "trained on", card.data
    yield "training", ", ".join(f"{name} {value:,.10g}" for name, value in card.training.items())
    yield "seeds", ", ".join(map(str, card.seeds))
    yield "command", card.command
    yield "made", card.made
    yield "sha256", sha256


def _result(result: Result) -> str:
    low, high = result.interval
    rival = f"; {result.rival} {result.rival_value:.4g}" if result.rival else ""
    return f"  {result.setting}, {result.metric}: {result.value:.4g} [{low:.4g}, {high:.4g}]{rival}"


def _part(name: str, part: PartCard) -> Iterator[str]:
    claim = ", its score is also the claim" if part.stops_others else ""
    yield f"{name}: {part.file}, {part.bytes:,} bytes, opset {part.opset}{claim}"
    yield f"  encoder {part.encoder}"
    for arrow, shapes in (("in", part.inputs), ("out", part.outputs)):
        for array, shape in shapes.items():
            yield f"  {arrow:<4}{array} ({', '.join(map(str, shape))})"
    yield f"  sha256 {part.sha256}"
