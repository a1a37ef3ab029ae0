"""Reading an ONNX file before it is trusted: what it may contain, and that it fits its encoder.

A network here is arithmetic on one call's inputs: the standard operators of a known version, the
weights inside the file, one answer. What could do more is refused: other domains, files beside it,
loops and branches, chance. So are weights that are not finite; infinity may only stand in a
constant of rank 0, because attention hides rows with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bireme.onnx.cards import PartCard
from bireme.onnx.errors import CheckpointError
from bireme.rl.protocols import Shape

if TYPE_CHECKING:
    import onnx
import math
from dataclasses import dataclass

from bireme.core.estimates import Progress
from bireme.core.gangs import Gang, Role, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import make_placement
from bireme.core.queues import Queue
from bireme.core.resources import request_of
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot

OPSETS: Final = range(18, 24)
"""Versions of ONNX' operators that every supported ONNX Runtime computes."""
_CHANCE: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    | {"RandomUniformLike"}
)


def inspect(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str], where: str
) -> None:
    """Refuse ``model`` unless it is a network as ``part`` states it, for an encoder of ``inputs``.

    ``output`` is the name of the answer and that of its only axis.

    Raises:
        CheckpointError: it is not; the text begins with ``where``.
    """
    for fault in _faults(model, part, inputs, output):
        raise CheckpointError(f"{where}: {fault}; export the checkpoint again")


def _faults(
    model: bytes, part: PartCard, inputs: Mapping[str, Shape], output: tuple[str, str]
) -> Iterator[str]:
    import onnx

    name, axis = output
    outputs: dict[str, Shape] = {name: (axis,)}
    if part.inputs != dict(inputs):
        yield f"inputs are {part.inputs}, those of encoder {part.encoder} {dict(inputs)}"
    if part.outputs != outputs:
        yield f"outputs are {part.outputs}, they must be {outputs}"
    try:
        parsed = onnx.ModelProto.FromString(model)
    except Exception as error:  # noqa: BLE001  # whatever a parser says of foreign bytes
        yield f"it is no ONNX file ({error})"
        return
    yield from _faults_of_versions(parsed, part)
    yield from _faults_of_nodes(parsed.graph.node)
    if parsed.functions or parsed.training_info or parsed.graph.sparse_initializer:
        yield "it has functions of its own, a training part or sparse weights"
    weights = {tensor.name for tensor in parsed.graph.initializer}
    for tensor in parsed.graph.initializer:
        yield from _faults_of_tensor(tensor)
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
        if node.op_type in _CHANCE:
            yield f"operator {node.op_type} draws by chance, and equal questions need equal answers"
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                yield f"operator {node.op_type} has a graph inside (a loop or a branch)"
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                yield f"operator {node.op_type} has sparse weights"
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

    found = {value.name: value.type.tensor_type for value in values}
    if found.keys() != expected.keys():
        yield f"its {kind}s are {sorted(found)}, they must be {sorted(expected)}"
        return
    for name, shape in expected.items():
        tensor = found[name]
        if tensor.elem_type != onnx.TensorProto.FLOAT:
            yield f"{kind} {name!r} is of type {tensor.elem_type}, it must be float32 (1)"
        dims = [d.dim_value if d.HasField("dim_value") else "?" for d in tensor.shape.dim]
        # An answer's size may have been derived, under any name; it is checked in the trial run.
        if dims != ["?" if isinstance(size, str) else size for size in shape]:
            yield f"{kind} {name!r} has shape {dims}, it must be {list(shape)}"


# A made-up cluster on which a checkpoint is tried before anything depends on it.
#
# Encoder and network answer once for each of a few sizes, on gangs and nodes of all kinds: whatever
# they cannot do shows here, and the first real question finds everything warm.

SIZES: Final = ((1, 1), (2, 3), (17, 9), (130, 70))
"""How many gangs on how many nodes."""
_GPU: Final = "nvidia.com/gpu"
_GIB: Final = 2**30
_NOW: Final = 1_000_000.0
_SETTINGS: Final = SchedulingSettings()


@dataclass(frozen=True, slots=True)
class _Speed:
    """Each replica adds less than the one before."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return math.pow(sum(sizes.values()), 0.8) / math.pow(max(nodes, 1), 0.1)


@dataclass(frozen=True, slots=True)
class _Loss:
    def loss(self, steps: float) -> float:
        return 0.1 + 1.0 / (1.0 + steps / 100.0)


def rehearsals() -> Iterator[tuple[tuple[Gang, ...], ClusterSnapshot]]:
    """Gangs, sorted by uid, and the snapshot in which some of them wait and some run."""
    for gangs, nodes in SIZES:
        table = NodeTable([_node(number) for number in range(nodes)], _SETTINGS.topology_levels)
        every = tuple(_gang(number) for number in range(gangs))
        running = tuple(_run(gang, table, place) for place, gang in enumerate(every[1::3]))
        held = {run.gang.uid for run in running}
        used = np.zeros_like(table.allocatable)
        for run in running:
            np.add.at(used, *run.usage(table.axis))
        yield (
            every,
            ClusterSnapshot(
                now=_NOW,
                nodes=table,
                used=used,
                waiting=tuple(gang for gang in every if gang.uid not in held),
                queues={"rehearsal": Queue("rehearsal")},
                settings=_SETTINGS,
                running=running,
            ),
        )


def _node(number: int) -> Node:
    """Nodes of 8, 4 or no GPUs, in racks of four, some in none; in three pools, and in none."""
    labels = {"kubernetes.io/hostname": f"node-{number:03d}"}
    if number % 7 != 6:
        labels["topology.bireme.dev/rack"] = f"rack-{number // 4}"
    if number % 4 != 3:
        labels[_SETTINGS.node_pool_label] = f"pool-{number % 4}"
    offers = {"cpu": 64_000, "memory": 256 * _GIB, "pods": 110}
    gpus = (8, 8, 4, 0)[number % 4]
    return Node(f"node-{number:03d}", offers | ({_GPU: gpus} if gpus else {}), labels)


def _gang(number: int) -> Gang:
    """Gangs of one or two tasks, with and without GPUs, estimates and service; half are elastic.

    Of those some have been measured, and some have told how far they are.
    """
    is_elastic, is_measured = number % 2 == 0, number % 4 == 0
    gpus = (1, 2, 8, 0)[number % 4]
    request = request_of({"cpu": 4_000, "memory": 8 * _GIB, "pods": 1, _GPU: gpus})
    most = 4 + number % 5 if is_elastic else 0
    tasks = [Task("worker", 1 + number % 5, request, min_replicas=1, max_replicas=most)]
    if number % 3 == 0:
        servers = request_of({"cpu": 2_000, "memory": 4 * _GIB, "pods": 1})
        tasks.append(Task("ps", 1, servers, Role.PS, priority=90))
    return Gang(
        uid=f"rehearsal-{number:04d}",
        name=f"rehearsal-{number:04d}",
        namespace="rehearsal",
        queue="rehearsal",
        tasks=tuple(tasks),
        arrived=_NOW - 60.0 * (number % 50),
        user=f"user-{number % 4}",
        estimated_seconds=None if number % 5 == 0 else 600.0 * (1 + number % 9),
        attained_seconds=3_600.0 * (number % 3),
        interrupted=number % 6 == 5,
        is_elastic=is_elastic,
        speed=_Speed() if is_measured else None,
        remaining_steps=1_000.0 * (1 + number % 7) if is_measured else None,
        done_steps=100.0 * (number % 3),
        loss=_Loss() if number % 8 == 0 else None,
        progress=_progress(number) if number % 3 == 0 else None,
    )


def _progress(number: int) -> Progress:
    """Reports that tell everything, and reports that tell nothing."""
    if number % 2:
        return Progress(_NOW - 1.0)
    return Progress(
        reported=_NOW - 5.0,
        fraction=0.1 * (number % 10),
        remaining_seconds=60.0 * number,
        steps=100.0 * number,
        loss=1.0 / (1 + number),
        worst_loss=2.0,
        accuracy=0.05 * (number % 20),
        accuracy_gain=0.01 * (number % 3),
    )


def _run(gang: Gang, nodes: NodeTable, place: int) -> RunningGang:
    """``gang`` on one node, whether it fits there or not: nodes may be overfull."""
    row = place % len(nodes)
    counts = {task.name: np.zeros(len(nodes), dtype=np.int64) for task in gang.tasks}
    for task in gang.tasks:
        counts[task.name][row] = task.replicas
    return RunningGang(gang, make_placement(gang, nodes, counts), started=_NOW - 30.0 * place)
