"""Networks that are refused, each fault with its own words; networks that cannot answer."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bireme.onnx.errors import CheckpointError
from bireme.rl.checkpoint import OUTPUTS, load
from testbed.networks import checkpoints, graphs
from testbed.networks.encoders import GangFacts


def node(kind: str, *inputs: str, to: str = "scores", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [to], **attributes)


def small(*nodes: onnx.NodeProto, **parts: Any) -> onnx.ModelProto:
    return graphs.model(GangFacts.inputs, OUTPUTS["orderer"], nodes, **parts)


def last() -> onnx.NodeProto:
    """From facts to scores."""
    return node("ReduceSum", "sums", "axis", keepdims=0)


def weighing(weights: onnx.TensorProto, *before: onnx.NodeProto) -> onnx.ModelProto:
    axis = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")
    times = node("Mul", "facts", "weights", to="sums")
    return small(*before, times, last(), initializers=[weights, axis])


def tensor(values: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=np.float32), "weights")


def outside() -> onnx.ModelProto:
    weights = tensor([1, 2, 3])
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../secret")
    return weighing(weights)


def branching() -> onnx.ModelProto:
    inner = helper.make_graph(
        [node("ReduceMax", "facts", "axis", to="x", keepdims=0)],
        "inner",
        [],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["gangs"])],
    )
    return small(node("If", "which", then_branch=inner, else_branch=inner))


def with_opset(*opsets: onnx.OperatorSetIdProto) -> onnx.ModelProto:
    model = weighing(tensor([1, 2, 3]))
    del model.opset_import[:]
    model.opset_import.extend(opsets)
    return model


def with_function() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", graphs.OPSET)]
    inner = helper.make_function("own", "F", ["a"], ["b"], [node("Abs", "a", to="b")], opsets)
    return small(node("Abs", "facts"), functions=[inner])


def shaped(facts: Any, scores: Any, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = weighing(tensor([1, 2, 3]))
    del model.graph.input[:], model.graph.output[:]
    model.graph.input.append(helper.make_tensor_value_info("facts", kind, facts))
    model.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, scores))
    return model


FINE = helper.make_opsetid("", graphs.OPSET)
MODELS: dict[str, tuple[onnx.ModelProto | bytes, dict[str, Any], str]] = {
    "nonsense": (b"\x08\x01 no model", {}, "it is no ONNX file"),
    "empty": (onnx.ModelProto(opset_import=[FINE]), {}, "its inputs are .., they must be"),
    "weights outside": (outside(), {}, "weights 'weights' lie outside the file"),
    "weight not a number": (weighing(tensor([1, np.nan, 3])), {}, "1 of 3 weights of 'weights'"),
    "infinite weight": (weighing(tensor([1, -np.inf, np.inf])), {}, "2 of 3 weights"),
    "constant not a number": (
        small(node("Constant", to="x", value=tensor([np.nan])), node("Abs", "facts")),
        {},
        "1 of 1 weights of 'weights' are not finite",
    ),
    "attribute not a number": (
        small(node("LeakyRelu", "facts", alpha=float("nan"))),
        {},
        "1 of 1 weights of 'LeakyRelu'",
    ),
    "branch": (branching(), {}, "operator If has a graph inside"),
    "chance": (small(node("RandomNormalLike", "facts")), {}, "RandomNormalLike is random"),
    "foreign operator": (
        small(node("Gelu", "facts", domain="com.microsoft")),
        {},
        "operator Gelu is of domain 'com.microsoft'",
    ),
    "foreign domain": (
        with_opset(FINE, helper.make_opsetid("com.microsoft", 1)),
        {},
        "operators of domain 'com.microsoft'",
    ),
    "old operators": (
        with_opset(helper.make_opsetid("", 17)),
        {"opset": 17},
        "opset 17 is too old, allowed are 18 to 23",
    ),
    "new operators": (
        with_opset(helper.make_opsetid("", 24)),
        {"opset": 24},
        "opset 24 is too new, allowed are 18 to 23",
    ),
    "function of its own": (with_function(), {}, "functions of its own"),
    "more features": (shaped(["n", 4], ["n"]), {}, r"input 'facts' has shape \['\?', 4\]"),
    "fixed gangs": (shaped([8, 3], ["n"]), {}, r"input 'facts' has shape \[8, 3\]"),
    "integers": (shaped(["n", 3], ["n"], TensorProto.INT64), {}, "input 'facts' is of type 7"),
    "wide answer": (shaped(["n", 3], ["n", 1]), {}, r"output 'scores' has shape \['\?', 1\]"),
    "unknown operator": (small(node("Nothing", "facts")), {}, "ONNX Runtime refuses it"),
    "missing value": (small(node("Abs", "nothing")), {}, "ONNX Runtime refuses it"),
}


@pytest.mark.parametrize("case", sorted(MODELS))
def test_a_model_that_may_not_be_served_is_refused_by_what_is_wrong_with_it(
    tmp_path: Path, case: str
) -> None:
    model, facts, words = MODELS[case]
    with pytest.raises(CheckpointError, match=words) as refusal:
        load(checkpoints.write_orderer(tmp_path, model, **facts))
    assert "small/orderer.onnx" in str(refusal.value)


def test_infinity_may_stand_in_a_lone_constant_because_attention_hides_rows_with_it(
    tmp_path: Path,
) -> None:
    hidden = numpy_helper.from_array(np.array(-np.inf, dtype=np.float32), "hidden")
    most = node("Max", "hidden", "facts", to="sums")
    axis = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")
    model = small(most, last(), initializers=[hidden, axis])
    assert load(checkpoints.write_orderer(tmp_path, model)).orderer is not None


AXIS = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")
ACROSS = numpy_helper.from_array(np.array([0], dtype=np.int64), "axis")
TRIALS = {
    "logarithm of nothing": (node("Log", "facts", to="sums"), AXIS, "answers are not finite"),
    "one answer per feature": (node("Abs", "facts", to="sums"), ACROSS, r"answered with shape .3,"),
}


@pytest.mark.parametrize("case", sorted(TRIALS))
def test_a_model_that_gives_no_number_per_gang_fails_its_trial_run(
    tmp_path: Path, case: str
) -> None:
    first, axis, words = TRIALS[case]
    with pytest.raises(CheckpointError, match=f"the smoke test failed: .*{words}"):
        load(checkpoints.write_orderer(tmp_path, small(first, last(), initializers=[axis])))
