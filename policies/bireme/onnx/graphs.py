"""Inspection of an ONNX file before its use.

A network may only be arithmetic on the inputs of one call: standard operators of a known version,
weights inside the file, one output. Everything else is refused: other operator domains, external
files, loops and branches, random operators, and non-finite weights. Infinity is allowed in a
constant of rank 0, because attention masks rows with it. Inputs and output must match the encoder.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bireme.onnx.cards import PartCard
from bireme.onnx.errors import CheckpointError
from bireme.onnx.sessions import Shape

if TYPE_CHECKING:
    import onnx

OPSETS: Final = range(18, 24)
"""Operator versions that every supported ONNX Runtime supports."""
_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike"}
)


def inspect(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str], where: str
) -> None:
    """Check that ``model`` is safe, matches ``part``, and fits an encoder of ``inputs``.

    ``output`` is the name of the answer and the name of its only axis.

    Raises:
        CheckpointError: on the first fault; the text begins with ``where``.
    """
    for fault in _faults(model, part, inputs, output):  # the first is enough
        raise CheckpointError(f"{where}: {fault}; export the checkpoint again")


def _faults(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str]
) -> Iterator[str]:
    import onnx  # slow, so only a process that loads a checkpoint imports it

    name, axis = output
    outputs: dict[str, Shape] = {name: (axis,)}
    if part.inputs != dict(inputs):
        yield f"inputs are {part.inputs}, those of encoder {part.encoder} {dict(inputs)}"
    if part.outputs != outputs:
        yield f"outputs are {part.outputs}, they must be {outputs}"
    try:
        parsed = onnx.ModelProto.FromString(model)
    except Exception as error:  # noqa: BLE001  # the parser may raise anything on foreign bytes
        yield f"it is no ONNX file ({error})"
        return
    yield from _faults_of_versions(parsed, part)
    yield from _faults_of_nodes(parsed.graph.node)
    if parsed.functions or parsed.training_info or parsed.graph.sparse_initializer:
        yield "it has functions of its own, a training part or sparse weights"
    weights = {tensor.name for tensor in parsed.graph.initializer}
    for tensor in parsed.graph.initializer:
        yield from _faults_of_tensor(tensor)
    # Files of old versions also list weights among the inputs.
    fed = [value for value in parsed.graph.input if value.name not in weights]
    yield from _faults_of_shapes("input", fed, inputs)
    yield from _faults_of_shapes("output", parsed.graph.output, outputs)


def _faults_of_versions(model: "onnx.ModelProto", part: PartCard) -> Iterator[str]:
    foreign = sorted({opset.domain for opset in model.opset_import} - {"", "ai.onnx"})
    if foreign:
        yield f"it uses operators of domain {foreign[0]!r}, allowed are those of ONNX alone"
    versions = [opset.version for opset in model.opset_import]
    if versions != [part.opset]:
        yield f"its opset is {versions}, the card says {part.opset}"
    if part.opset not in OPSETS:
        age = "old" if part.opset < OPSETS.start else "new"
        yield f"opset {part.opset} is too {age}, allowed are {OPSETS.start} to {OPSETS.stop - 1}"


def _faults_of_nodes(nodes: "Iterable[onnx.NodeProto]") -> Iterator[str]:
    for node in nodes:
        if node.domain not in ("", "ai.onnx"):
            yield f"operator {node.op_type} is of domain {node.domain!r}, allowed is ONNX' own"
        if node.op_type in _RANDOM:
            yield f"operator {node.op_type} is random, and equal inputs need equal answers"
        for attribute in node.attribute:
            # This loop does not visit the nodes of inner graphs, so refuse them.
            if attribute.HasField("g") or attribute.graphs:
                yield f"operator {node.op_type} has a graph inside (a loop or a branch)"
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                yield f"operator {node.op_type} has sparse weights"
            # Constants in attributes are weights too.
            for tensor in (attribute.t, *attribute.tensors):
                yield from _faults_of_tensor(tensor)
            yield from _faults_of_values(node.op_type, [attribute.f, *attribute.floats])


def _faults_of_tensor(tensor: "onnx.TensorProto") -> Iterator[str]:
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        yield f"weights {tensor.name!r} lie outside the file; export with external_data=False"
        return
    if tensor.data_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return
    try:
        values = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        yield f"weights {tensor.name!r} cannot be read ({error})"
        return
    if values.dtype.kind == "f" and (values.ndim or np.isnan(values)):
        yield from _faults_of_values(tensor.name, values)


def _faults_of_values(name: str, values: Any) -> Iterator[str]:
    unfit = np.count_nonzero(~np.isfinite(values))
    if unfit:
        yield f"{unfit} of {np.size(values)} weights of {name!r} are not finite"


def _faults_of_shapes(
    kind: str, values: "Iterable[onnx.ValueInfoProto]", expected: Mapping[str, Shape]
) -> Iterator[str]:
    import onnx

    types = {value.name: value.type.tensor_type for value in values}
    if types.keys() != expected.keys():
        yield f"its {kind}s are {sorted(types)}, they must be {sorted(expected)}"
        return
    for name, shape in expected.items():
        tensor = types[name]
        if tensor.elem_type != onnx.TensorProto.FLOAT:
            yield f"{kind} {name!r} is of type {tensor.elem_type}, it must be float32 (1)"
        dims = [d.dim_value if d.HasField("dim_value") else "?" for d in tensor.shape.dim]
        # A derived size may have any name; the smoke test checks it.
        if dims != ["?" if isinstance(size, str) else size for size in shape]:
            yield f"{kind} {name!r} has shape {dims}, it must be {list(shape)}"
