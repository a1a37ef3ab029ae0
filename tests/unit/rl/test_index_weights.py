"""Other weights in the shipped network of the learned index: as torch would order by them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bireme.core.policy import Orderer
from bireme.core.resources import FloatArray
from bireme.onnx.constants import with_constants
from bireme.onnx.errors import CheckpointError
from bireme.policy_names import checkpoint_folders
from bireme.registry import make_orderer
from bireme.rl.index_weights import (
    NAME,
    WEIGHTS,
    clip_weights,
    shipped_card,
    shipped_weights,
    write_checkpoint,
)
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.training.index.networks import IndexNetwork
from bireme_lab.training.index.recipe import IndexOrderer

OTHER = clip_weights(np.array([10.0, 0.15, 2.0, 1.5, 0.3, 6.0, 1.1, 0.9]))
GANGS = [
    replace(
        a_gang(f"g{i}", a_task(1 + 5 * i % 8)),
        attained_seconds=37.0 * i**3 if i % 2 else 45.0 * i,
        estimated_seconds=None if i % 3 == 0 else 90.0 * i * i,
    )
    for i in range(25)
]


def scores(orderer: Orderer) -> list[tuple[str, float]]:
    runs = a_gang("runs", a_task(2), arrived=0.0)
    snapshot = a_snapshot([a_node("n0")], *GANGS, now=9e4)
    snapshot = with_running(snapshot, a_running_gang(runs, snapshot.nodes, started=0.0))
    return [(each.gang.uid, each.score) for each in orderer.order([*GANGS, runs], snapshot)]


def as_torch(values: FloatArray) -> IndexOrderer:
    """The network of training: it takes the step in front of the softplus."""
    raw = values.copy()
    raw[-1] = np.log(np.expm1(raw[-1] - 0.25))
    return IndexOrderer(IndexNetwork(raw))


@pytest.mark.parametrize("changed", [*WEIGHTS, "all"])
def test_every_weight_means_what_it_means_to_the_network_of_training(
    tmp_path: Path, changed: str
) -> None:
    values = shipped_weights()
    for at, name in enumerate(WEIGHTS):
        if changed in (name, "all"):
            values[at] = OTHER[at]
    write_checkpoint(values, shipped_card(), tmp_path)
    found = scores(make_orderer(f"checkpoint:{tmp_path}"))
    assert found == scores(as_torch(values))
    assert found != scores(make_orderer(NAME))


def test_weights_stay_within_their_bounds_and_are_those_of_what_is_shipped() -> None:
    assert clip_weights(shipped_weights()) == pytest.approx(shipped_weights(), abs=1e-4)
    most = [weight.maximum for weight in WEIGHTS.values()]
    assert clip_weights(np.full(len(WEIGHTS), 1e9)).tolist() == most


def test_constant_that_a_network_lacks_is_refused_by_name() -> None:
    model = (checkpoint_folders()[NAME] / "orderer.onnx").read_bytes()
    with pytest.raises(CheckpointError, match="no constant is called 'getitem_99'"):
        with_constants(model, {"getitem_99": 1.0}, NAME)
    with pytest.raises(CheckpointError, match="it is no ONNX file"):
        with_constants(b"nothing", {}, NAME)
