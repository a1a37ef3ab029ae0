"""Networks of one layer as ONNX: what any of an encoder's rows is worth, a weighted sum."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bireme.onnx.sessions import Shape

OPSET = 20


def weighted_sum(
    inputs: Mapping[str, Shape], output: tuple[str, str], weights: Sequence[float]
) -> onnx.ModelProto:
    """Sum the features of the first input that lies along the axis of ``output``.

    ``weights`` are repeated or cut to as many as there are features.
    """
    name, axis = output
    fed, width = next((n, s[1]) for n, s in inputs.items() if s[0] == axis and len(s) == 2)
    values = np.resize(np.array(weights, dtype=np.float32), (cast(int, width), 1))
    return model(
        inputs,
        output,
        [
            helper.make_node("MatMul", [fed, "weights"], ["sums"]),
            helper.make_node("Squeeze", ["sums", "last"], [name]),
        ],
        [
            numpy_helper.from_array(values, "weights"),
            numpy_helper.from_array(np.array([1], dtype=np.int64), "last"),
        ],
    )


def always_more(inputs: Mapping[str, Shape], output: tuple[str, str]) -> onnx.ModelProto:
    """For sizers that work in single nodes: none is worth 0, one more for any gang 1, one less -1.

    The rows of the first input are those that may have more.
    """
    fed = next(iter(inputs))
    weights: dict[str, NDArray[Any]] = {
        "axis": np.array([1], dtype=np.int64),
        "none": np.zeros(1, dtype=np.float32),
        "one": np.ones(1, dtype=np.float32),
    }
    nodes = [
        helper.make_node("ReduceMax", [fed, "axis"], ["most"], keepdims=0),
        helper.make_node("Mul", ["most", "none"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["more"]),
        helper.make_node("Sub", ["zeros", "one"], ["less"]),
        helper.make_node("Concat", ["none", "more", "less"], [output[0]], axis=0),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return model(inputs, output, nodes, tensors)


def model(
    inputs: Mapping[str, Shape],
    output: tuple[str, str],
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto] = (),
    **parts: Any,
) -> onnx.ModelProto:
    """Return a model of ``nodes`` with one output; ``parts`` as ``make_model`` has."""
    name, axis = output
    graph = helper.make_graph(
        list(nodes),
        "small",
        [_value(one, shape) for one, shape in inputs.items()],
        [_value(name, (axis,))],
        list(initializers),
    )
    parts.setdefault("opset_imports", [helper.make_opsetid("", OPSET)])
    return helper.make_model(graph, ir_version=9, **parts)


def _value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def slow(inputs: Mapping[str, Shape], output: tuple[str, str]) -> onnx.ModelProto:
    """Sum the only input's features, after minutes of products of large matrices."""
    (fed,) = inputs
    weights: dict[str, NDArray[Any]] = {
        "axis": np.array([1], dtype=np.int64),
        "square": np.array([1200, 1200], dtype=np.int64),
        "nothing": np.array(0, dtype=np.float32),
    }
    nodes = [
        helper.make_node("ReduceMax", [fed], ["most"], keepdims=0),
        helper.make_node("Expand", ["most", "square"], ["product-0"]),
    ]
    steps = 500
    for step in range(steps):
        factors = [f"product-{step}", "product-0"]
        nodes.append(helper.make_node("MatMul", factors, [f"product-{step + 1}"]))
    nodes += [
        helper.make_node("ReduceMax", [f"product-{steps}"], ["end"], keepdims=0),
        helper.make_node("Mul", ["end", "nothing"], ["zero"]),
        helper.make_node("ReduceSum", [fed, "axis"], ["sums"], keepdims=0),
        helper.make_node("Add", ["sums", "zero"], [output[0]]),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return model(inputs, output, nodes, tensors)
