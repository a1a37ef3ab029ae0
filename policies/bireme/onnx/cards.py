"""The card of a checkpoint: its identity, training, results and files.

A card is JSON. Its sha256 names the checkpoint, because the card contains the sha256 of every file.
:func:`card_text` formats the card of a policy for people.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from bireme.core.policy import PARTS, PartName
from bireme.onnx.errors import CheckpointError

CARD_FILE: Final = "card.json"
FORMAT: Final = 2
"""Version of the format; a card of another version is refused."""
# Bounds for untrusted files; shipped cards and networks are far smaller.
MAX_CARD_BYTES: Final = 256 * 1024
MAX_PART_BYTES: Final = 16 * 1024 * 1024

Text = Annotated[str, Meta(min_length=1)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Commit = Annotated[str, Meta(pattern="^[0-9a-f]{40}(-dirty)?$")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.onnx$")]
Size = Annotated[int, Meta(ge=1)] | Text
Shapes = dict[Text, tuple[Size, ...]]
VERSIONED: Final = ("bireme", "torch", "onnx", "numpy")
"""Packages whose versions every card states."""
_TRAINING: Final = ("steps", "minutes")
_T = TypeVar("_T", bound="BaseCard")
_S = TypeVar("_S")


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all structures of a card: immutable, without unknown fields."""


class Result(_Struct, frozen=True, kw_only=True):
    """One metric in one setting, beside the best baseline of that evaluation.

    Attributes:
        interval: 95 % interval, by bootstrap over seeds.
        rival, rival_value: Name of the best baseline and its mean.
        command: The command that measures it again.
    """

    setting: Text
    metric: Text
    value: float
    interval: tuple[float, float]
    rival: str
    rival_value: float
    command: str


class BenchmarkRow(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The benchmark's finding in one family of worlds, beside the best tuned rule.

    Attributes:
        split: The data for the tuning of the rule, and for the comparison.
        baseline: The rule with its constants.
        jct, interval: Mean completion time over the rule's, and 95 % interval of that ratio; None
            for one block.
        p99_wait: 99th percentile of the wait over the rule's; None if the rule's is 0.
        finding: ``better``, ``worse`` or ``level`` by the interval; ``too few`` blocks for an
            interval; ``unfinished`` jobs.
        worlds, blocks, seeds: Numbers of simulated worlds, of blocks, and of trainings.
        commit: Commit of the sources that measured it, if it differs from the other rows'.
    """

    family: Text
    split: Text
    baseline: Text
    jct: float
    interval: tuple[float, float] | None
    p99_wait: float | None
    finding: Literal["better", "worse", "level", "too few", "unfinished"]
    worlds: int
    blocks: int
    seeds: int
    commit: Commit | None = None


class Benchmark(_Struct, frozen=True, kw_only=True):
    """The policy's rows in the tables of ``python -m bireme_lab.contest``.

    Attributes:
        commit: Commit of the sources that measured it, with ``-dirty`` for changed sources.
        versions: Versions by package.
    """

    made: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    commit: Commit
    versions: dict[Text, Text]
    rows: tuple[BenchmarkRow, ...]

    @property
    def loses(self) -> tuple[str, ...]:
        """The families in which the best tuned rule is better."""
        return tuple(r.family for r in self.rows if r.finding in ("worse", "unfinished"))


class PartCard(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One network, its file and its encoder.

    Attributes:
        file: Its ONNX file, beside the card.
        sha256, bytes: Digest and size of that file.
        opset: Version of ONNX' operators in the file.
        encoder: Name and version of the encoder of its inputs.
        inputs, outputs: Shapes by name; a text is an axis of variable size.
        stops_others: Whether a higher score may preempt running gangs (see
            :class:`~bireme.core.policy.Ranked`). Such a score must not depend on a gang's wait or
            on other gangs.
    """

    file: FileName
    sha256: Digest
    bytes: Annotated[int, Meta(ge=1, le=MAX_PART_BYTES)]
    opset: int
    encoder: Text
    inputs: Shapes
    outputs: Shapes
    stops_others: bool = False


class Parts(_Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The networks of a policy's checkpoint; at least one."""

    orderer: PartCard | None = None
    placer: PartCard | None = None
    sizer: PartCard | None = None

    def by_name(self) -> dict[PartName, PartCard]:
        """Return the networks that exist, by name."""
        return {name: part for name in PARTS if (part := getattr(self, name)) is not None}


class BaseCard(_Struct, frozen=True, kw_only=True):
    """The fields of every card.

    Attributes:
        name, summary: Name of the checkpoint, and one sentence about it.
        paper: Its source; empty for none.
        made: Date of the training, as 2026-11-21.
        command: The command that trains it again.
        commit: Commit of the training sources, with ``-dirty`` for changed sources; None if
            unknown. Checkpoints that come with Bireme have the commit that added them.
        versions: Versions of Bireme, torch, onnx and numpy, by name; or "unknown".
        seeds: One seed for each training.
        data: The training data.
        split: The data for training, validation and evaluation.
        training: Numbers of the training by name.
        results: Results of evaluations.
        notes: Notes about the results.
    """

    format: int = FORMAT
    name: Text
    summary: Text
    paper: str
    made: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    command: Text
    commit: Commit | None
    versions: dict[Text, Text]
    seeds: tuple[int, ...]
    data: Text
    split: Text
    training: dict[Text, float]
    results: tuple[Result, ...]
    notes: tuple[Text, ...] = ()


class Card(BaseCard, frozen=True, kw_only=True):
    """The card of a policy's checkpoint; ``training`` has ``steps`` and ``minutes``.

    Attributes:
        benchmark: The findings of the benchmark; None for a policy outside it.
    """

    parts: Parts
    benchmark: Benchmark | None = None

    @property
    def is_research(self) -> bool:
        """Whether the best tuned rule beats it in at least one family of the benchmark."""
        return self.benchmark is not None and bool(self.benchmark.loses)


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode(card: BaseCard) -> bytes:
    """Return the bytes of the file of ``card``."""
    return msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n"


def decode(text: bytes, where: object) -> Card:
    """Return the card of a policy from ``text``, the file ``where``.

    Raises:
        CheckpointError: the text is no card of this format.
    """
    card = decode_as(text, Card, where)
    if not card.parts.by_name():
        raise CheckpointError(f"{where}: parts is empty; give an orderer, a placer or a sizer")
    for key in _TRAINING:
        if key not in card.training:
            raise CheckpointError(f"{where}: training has no {key!r}; state how many")
    return card


def decode_as(text: bytes, kind: type[_T], where: object) -> _T:
    """Return the card of that ``kind`` from ``text``; raises as :func:`decode`."""
    # Check the version first: a card of another format may have other fields.
    version = _decode(text, _Format, where).format
    if version != FORMAT:
        raise CheckpointError(
            f"{where}: format is {version}, this Bireme reads format {FORMAT}; export the "
            "checkpoint with this version of Bireme, or run the version that made it"
        )
    card = _decode(text, kind, where)
    for package in VERSIONED:
        if package not in card.versions:
            raise CheckpointError(
                f'{where}: versions has no {package!r}; state its version, or "unknown"'
            )
    return card


def _decode(text: bytes, kind: type[_S], where: object) -> _S:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"{where}: {error}{_value_at(text, str(error))}; correct the card, or export the "
            "checkpoint again"
        ) from error
    # JSON nested deeper than any card raises RecursionError.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{where} is no JSON: {error}; export the checkpoint again"
        ) from error


def _value_at(text: bytes, message: str) -> str:
    """Return the value at the path in ``message`` as text; empty without a path."""
    # msgspec's messages name the path of the fault, but not its value.
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


# --- text for people --------------------------------------------------------------------------


def card_text(card: Card, sha256: str) -> str:
    """Format ``card``: summary, training, results and networks."""
    lines = [f"{card.name}: {card.summary}", ""]
    lines += [f"{label:<12}{text}" for label, text in _fields(card, sha256) if text]
    if card.results:
        lines += ["", "Results, with 95 % intervals:", *map(_result_line, card.results)]
        commands = dict.fromkeys(result.command for result in card.results)
        lines += ["Measured by:", *(f"  {command}" for command in commands)]
    if card.benchmark is not None:
        lines += ["", *_benchmark_lines(card.benchmark)]
    lines += [f"Note: {note}" for note in card.notes]
    for name, part in card.parts.by_name().items():
        lines += ["", *_part_lines(name, part)]
    return "\n".join(lines) + "\n"


def _fields(card: Card, sha256: str) -> Iterator[tuple[str, str]]:
    yield "paper", card.paper
    yield "trained on", card.data
    yield "split", card.split
    yield "training", ", ".join(f"{name} {value:,.10g}" for name, value in card.training.items())
    yield "seeds", ", ".join(map(str, card.seeds))
    yield "command", card.command
    yield "made", card.made
    yield "commit", card.commit or "unknown"
    yield "versions", ", ".join(f"{name} {version}" for name, version in card.versions.items())
    yield "sha256", sha256


def _result_line(result: Result) -> str:
    low, high = result.interval
    rival = f"; {result.rival} {result.rival_value:.4g}" if result.rival else ""
    return f"  {result.setting}, {result.metric}: {result.value:.4g} [{low:.4g}, {high:.4g}]{rival}"


def _benchmark_lines(benchmark: Benchmark) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in benchmark.versions.items())
    yield "Mean completion time over that of the best tuned rule, with 95 % intervals"
    made = f"{benchmark.made}, commit {benchmark.commit[:12]}"
    yield f"(python -m bireme_lab.contest, {made}, {versions}):"
    for row in benchmark.rows:
        low, high = row.interval or (row.jct, row.jct)
        seeds = f"{row.seeds} seed{'s' * (row.seeds != 1)}"
        suffix = f"; commit {row.commit[:12]}" if row.commit else ""
        yield (
            f"  {row.family}: {row.jct:.3f} [{low:.3f}, {high:.3f}] of {row.baseline}; "
            f"{row.finding}; {row.worlds} worlds, {seeds}{suffix}"
        )
    if benchmark.loses:
        yield f"Research: the best tuned rule is better in {', '.join(benchmark.loses)}."


def _part_lines(name: str, part: PartCard) -> Iterator[str]:
    stops = ", its score is also the preemption priority" if part.stops_others else ""
    yield f"{name}: {part.file}, {part.bytes:,} bytes, opset {part.opset}{stops}"
    yield f"  encoder {part.encoder}"
    for arrow, shapes in (("in", part.inputs), ("out", part.outputs)):
        for array, shape in shapes.items():
            yield f"  {arrow:<4}{array} ({', '.join(map(str, shape))})"
    yield f"  sha256 {part.sha256}"
