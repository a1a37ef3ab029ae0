"""Folders that Bireme loads as checkpoints, with cards that state what lies in them."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import onnx

from bireme.core.policy import PartName
from bireme.onnx import cards
from bireme.onnx.cards import Card, PartCard, Parts
from bireme.onnx.sessions import Shape
from bireme.rl import encoders
from bireme.rl.checkpoint import OUTPUTS
from testbed.networks.encoders import GANG_FACTS, NODE_FACTS, SIZE_FACTS, GangFacts
from testbed.networks.graphs import weighted_sum

ORDERER: Final = "orderer.onnx"
PLACER: Final = "placer.onnx"
SIZER: Final = "sizer.onnx"


def write(
    folder: Path,
    *,
    orderer: Sequence[float] = (),
    placer: Sequence[float] = (),
    sizer: Sequence[float] = (),
    order_encoder: str = GANG_FACTS,
    place_encoder: str = NODE_FACTS,
    size_encoder: str = SIZE_FACTS,
    stops_others: bool = False,
    name: str = "small",
) -> Path:
    """Write a checkpoint whose parts weigh the features of their encoder; return ``folder``.

    A part without weights is left out.
    """
    asked: dict[PartName, tuple[str, Sequence[float]]] = {
        "orderer": (order_encoder, orderer),
        "placer": (place_encoder, placer),
        "sizer": (size_encoder, sizer),
    }
    parts: dict[str, PartCard] = {}
    for part, (encoder, weights) in asked.items():
        if weights:
            shapes, output = encoders.make(part, encoder).inputs, OUTPUTS[part]
            model = weighted_sum(shapes, output, weights)
            written = write_part(folder / f"{part}.onnx", model, encoder, shapes, output)
            stops = stops_others and part == "orderer"
            parts[part] = msgspec.structs.replace(written, stops_others=stops)
    write_card(folder, card(name, Parts(**parts)))
    return folder


def write_part(
    path: Path,
    model: onnx.ModelProto | bytes,
    encoder: str,
    inputs: Mapping[str, Shape],
    output: tuple[str, str],
) -> PartCard:
    """Write ``model`` as a file and return its part of a card."""
    written = model if isinstance(model, bytes) else model.SerializeToString(deterministic=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written)
    return PartCard(
        file=path.name,
        sha256=sha256(written).hexdigest(),
        bytes=len(written),
        opset=20 if isinstance(model, bytes) else model.opset_import[0].version,
        encoder=encoder,
        inputs=dict(inputs),
        outputs={output[0]: (output[1],)},
    )


def write_orderer(folder: Path, model: onnx.ModelProto | bytes, **facts: Any) -> Path:
    """Write a checkpoint of one orderer, its card correct but for ``facts``; return ``folder``."""
    part = write_part(folder / ORDERER, model, GANG_FACTS, GangFacts.inputs, OUTPUTS["orderer"])
    part = msgspec.structs.replace(part, **facts)
    write_card(folder, card("small", Parts(orderer=part)))
    return folder


def card(name: str, parts: Parts) -> Card:
    return Card(
        name=name,
        summary="A weighted sum of a few facts.",
        paper="",
        made="2026-11-21",
        command="none: its weights are written down",
        commit=None,
        versions=dict.fromkeys(cards.VERSIONED, "unknown"),
        seeds=(0,),
        data="nothing",
        split="trained on nothing",
        training={"steps": 0.0, "minutes": 0.0},
        results=(),
        parts=parts,
    )


def write_card(folder: Path, written: Card) -> str:
    """Write a card into ``folder`` and return its sha256."""
    text = cards.encode(written)
    (folder / cards.CARD_FILE).write_bytes(text)
    return sha256(text).hexdigest()
