"""Trained networks as a checkpoint: ONNX files and a card, with answers equal to torch's.

Named axes of an encoder are exported as dynamic ones, so that one file serves every number of gangs
and nodes. The serving loader loads the written files, and their answers are compared with torch's.
"""

import contextlib
import datetime
import io
import logging
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np
import torch

from bireme.core.policy import PartName
from bireme.onnx import cards
from bireme.onnx.cards import Card, PartCard, Parts
from bireme.onnx.errors import CheckpointError
from bireme.onnx.sessions import Array, Session, Shape
from bireme.rl import encoders
from bireme.rl.checkpoint import OUTPUTS, Checkpoint, load
from bireme_lab.training.evaluation import session_of
from bireme_lab.training.runs import TrainingRun

if TYPE_CHECKING:
    import onnx

OPSET: Final = 18
TOLERANCE: Final = 1e-4
"""The maximum difference of an exported network's answers, as a share of torch's largest one."""
_GIT_SECONDS: Final = 10.0
_TRIED: Final = (1, 2, 5, 33, 130)
"""Sizes of dynamic axes in the comparison."""
_TRACED: Final = 3
"""The first size of dynamic axes while tracing; torch takes 0 and 1 for constants."""


@dataclass(frozen=True, slots=True)
class TrainedPart:
    """A trained part.

    Attributes:
        module: Called with one float32 tensor per input of the encoder, in order; returns one
            number per gang, node or move, shape (rows,).
        encoder: Name and version of the encoder of its inputs.
        stops_others: As in :class:`~bireme.onnx.cards.PartCard`.
    """

    module: torch.nn.Module
    encoder: str
    stops_others: bool = False


def export(parts: Mapping[PartName, TrainedPart], card: Card, folder: Path) -> Checkpoint:
    """Write ``parts`` and ``card`` with these parts into a new ``folder``.

    Raises:
        CheckpointError: the written checkpoint is invalid, or answers differently from torch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    part_cards: dict[PartName, PartCard] = {}
    for name, part in parts.items():
        part.module.cpu()  # serving runs on the CPU
        inputs = encoders.make(name, part.encoder).inputs
        model, part_card = to_onnx(part.module, f"{name}.onnx", part.encoder, inputs, OUTPUTS[name])
        (folder / part_card.file).write_bytes(model)
        part_cards[name] = msgspec.structs.replace(part_card, stops_others=part.stops_others)
    whole = msgspec.structs.replace(card, parts=Parts(**part_cards))
    (folder / cards.CARD_FILE).write_bytes(cards.encode(whole))
    checkpoint = load(folder)
    for name, part in parts.items():
        compare(part.module, session_of(checkpoint, name), part_cards[name])
    return checkpoint


class Named(Protocol):
    """The attributes of a recipe that its :class:`~bireme.onnx.cards.Card` repeats."""

    name: str
    summary: str
    paper: str
    split: str


def export_run(
    run: TrainingRun,
    recipe: Named,
    parts: Mapping[PartName, TrainedPart],
    data: str,
    **numbers: float,
) -> Path:
    """Write the checkpoint of ``run``, in the first process; return its folder.

    Args:
        data: Description of the training data.
        numbers: Numbers of the training for the card, beside its minutes.
    """
    folder = run.checkpoint_folder
    if not run.is_first:
        return folder
    card = Card(
        name=recipe.name,
        summary=recipe.summary,
        paper=recipe.paper,
        made=today(),
        command=run.command or f"bireme train {recipe.name} --seed {run.seed}",
        commit=source_commit(),
        versions=versions(),
        seeds=(run.seed,),
        data=data,
        split=recipe.split,
        training={**numbers, "minutes": round(run.seconds / 60, 1)},
        results=(),
        parts=Parts(),
    )
    export(parts, card, folder)
    return folder


def today() -> str:
    """Return the date of the run in the format of cards."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()  # noqa: TID251


def versions() -> dict[str, str]:
    """Return the installed versions of the packages on cards."""
    return {package: version(package) for package in cards.VERSIONED}


def source_commit(file: Path = Path(__file__)) -> str | None:
    """Return the commit of the checkout with ``file``, with ``-dirty`` if changed.

    None without a checkout of Bireme or without git.
    """
    # A virtual environment inside another project's checkout is not part of it.
    if not _git(file.parent, "ls-files", file.name):
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no", ":/")
    return f"{commit}-dirty" if commit and changes else commit or None


def _git(folder: Path, *arguments: str) -> str:
    """Return what git prints in ``folder``; empty if it fails."""
    try:
        done = subprocess.run(  # noqa: S603  # no argument is of a user's making
            ["git", *arguments],  # noqa: S607  # the user's own git
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def to_onnx(
    module: torch.nn.Module,
    file: str,
    encoder: str,
    inputs: Mapping[str, Shape],
    output: tuple[str, str],
) -> tuple[bytes, PartCard]:
    """Return ``module`` as an ONNX file, and its entry in a card, without writing.

    Raises:
        CheckpointError: torch cannot export it.
    """
    model = _onnx(module, inputs, output)
    card = PartCard(
        file=file,
        sha256=sha256(model).hexdigest(),
        bytes=len(model),
        opset=OPSET,
        encoder=encoder,
        inputs=dict(inputs),
        outputs={output[0]: (output[1],)},
    )
    return model, card


def _onnx(module: torch.nn.Module, inputs: Mapping[str, Shape], output: tuple[str, str]) -> bytes:
    axes = {size for shape in inputs.values() for size in shape if isinstance(size, str)}
    dims = {axis: torch.export.Dim(axis, min=1) for axis in sorted(axes)}
    # torch would merge two axes of the same size.
    sizes = {axis: _TRACED + place for place, axis in enumerate(sorted(axes))}
    with _quiet(), _evaluating(module), torch.no_grad():
        program = torch.onnx.export(
            module,
            tuple(map(torch.from_numpy, _draw(inputs, sizes, 0).values())),
            input_names=list(inputs),
            output_names=[output[0]],
            dynamic_shapes=tuple(
                {index: dims[size] for index, size in enumerate(shape) if isinstance(size, str)}
                for shape in inputs.values()
            ),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise CheckpointError("torch exported nothing; see its messages")
    return bytes(_bare(program.model_proto).SerializeToString(deterministic=True))


def _bare(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """Return ``model`` without the exporter's notes, which contain source lines and paths."""
    graph = model.graph
    for noted in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        noted.ClearField("doc_string")
        noted.ClearField("metadata_props")
    graph.ClearField("value_info")
    return model


def compare(module: torch.nn.Module, session: Session, card: PartCard) -> None:
    """Raise CheckpointError unless torch and ONNX Runtime agree at several sizes."""
    axes = {size for shape in card.inputs.values() for size in shape if isinstance(size, str)}
    for seed in range(len(_TRIED)):
        sizes = {a: _TRIED[(seed + index) % len(_TRIED)] for index, a in enumerate(sorted(axes))}
        arrays = _draw(card.inputs, sizes, seed)
        with _evaluating(module), torch.no_grad():
            answer = module(*map(torch.from_numpy, arrays.values()))
        expected = answer.numpy()
        # torch gives the number of rows: a sizer's moves need not be an axis of its inputs.
        actual = session.answer(arrays, len(expected), limit_seconds=10.0)
        # An answer near 0 may be the difference of large sums, with their rounding errors.
        largest = max(1.0, float(np.abs(expected).max()))
        if not np.allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE * largest):
            worst = float(np.abs(actual - expected).max())
            raise CheckpointError(
                f"{card.file}: for {sizes} ONNX Runtime answers otherwise than torch, by up to "
                f"{worst:g}; look for what depends on a size in the module"
            )


def _draw(inputs: Mapping[str, Shape], sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Draw arrays of the shapes of ``inputs``, standard normal."""
    chance = np.random.default_rng(seed)
    return {
        name: chance.standard_normal(
            [size if isinstance(size, int) else sizes[size] for size in shape], dtype=np.float32
        )
        for name, shape in inputs.items()
    }


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Keep ``module`` in evaluation mode within the context."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the remarks of torch's exporter within the context; errors are still raised."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
