"""Pods of Alibaba's ``openb`` cluster (clusterdata ``cluster-trace-gpu-v2023``, FGD, ATC 2023).

Pod lists ``name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec,qos,pod_phase,creation_time,
deletion_time,scheduled_time]``, times in seconds. Every pod is a job of one replica, CPU-only pods
included. A share of a GPU (``gpu_milli`` below 1000) becomes a whole one, because a device is the
smallest unit that the scheduler counts. The node list is ``nodes``, or by default
``openb_node_list_all_node.csv`` beside the pod list.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from bireme.core import gangs
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.pod_constraints import (
    ANYWHERE,
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.core.resources import CPU, MEMORY, PODS, request_of
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.tables import (
    PODS_PER_NODE,
    CsvTable,
    JobColumns,
    read_table,
    trace_of,
)
from bireme_lab.simulator.workload import Trace

SHARED: Final = "share of a GPU, rounded up to a whole one"

POD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
NODE = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_NODE_LIST = "openb_node_list_all_node.csv"


def read_openb(
    path: Path, *, nodes: str = "", interval_seconds: float = 0.0, run_seconds: float = 0.0
) -> Trace:
    """Read all pods that ran, each from its scheduling to its deletion.

    The re-sampled lists ``multigpu*`` have no times. Their pods arrive every ``interval_seconds``,
    in the order of the list, and run for ``run_seconds``. Pods with GPU models (``gpu_spec``) fit
    only nodes labelled with one of them, such as those of the node list. Raises TraceError for a
    list without times when ``run_seconds`` is 0.
    """
    table = read_table(path, POD, optional=("gpu_spec", *TIMES))
    submitted, runs = _times(table, interval_seconds, run_seconds)
    shares = table.counts("gpu_milli")
    gpus = table.counts("num_gpu")
    cores, memory = table.counts("cpu_milli"), table.numbers("memory_mib", minimum=0)
    tasks = list(map(_pod, cores, memory, gpus, table.texts("gpu_spec")))
    shared = sum(g == 1 and s < 1000 and r > 0 for g, s, r in zip(gpus, shares, runs, strict=True))
    return trace_of(
        path.name,
        table,
        JobColumns(table.texts("name"), submitted, runs, tasks),
        nodes=_nodes(path, nodes),
        treatments=Counter({SHARED: shared} if shared else {}),
    )


def _times(
    table: CsvTable, interval_seconds: float, run_seconds: float
) -> tuple[Sequence[float], Sequence[float]]:
    """Return submission and run time of every pod, in seconds."""
    if run_seconds > 0 and interval_seconds >= 0:
        return [i * interval_seconds for i in range(len(table))], [run_seconds] * len(table)
    if not all(name in table.columns for name in TIMES):
        raise TraceError(
            f"{table.file}, line 1: the list has no times; say how pods come and how long they "
            f"run: openb:{table.file}?interval_seconds=60&run_seconds=3600"
        )
    starts = table.numbers("scheduled_time", may_be_blank=True)
    ends = table.numbers("deletion_time", may_be_blank=True)
    runs = [end - start for start, end in zip(starts, ends, strict=True)]
    return table.numbers("creation_time", may_be_blank=True), runs


@lru_cache(maxsize=65_536)
def _pod(cpu_millis: int, memory_mib: float, gpus: int, models: str) -> tuple[gangs.Task, ...]:
    amounts = {CPU: cpu_millis, MEMORY: round(memory_mib * 2**20), GPU: gpus, PODS: 1}
    constraints = ANYWHERE
    if models:
        model_names = tuple(sorted(set(models.split("|"))))
        term = SelectorTerm((Requirement(GPU_MODEL_LABEL, SelectorOperator.IN, model_names),))
        constraints = NodeConstraints(affinity_terms=(term,))
    return (gangs.Task("worker", 1, request_of(amounts), constraints=constraints),)


def _nodes(pods: Path, node_list: str) -> list[Node]:
    """Read the machines of the file ``node_list``, or of the list beside the pod list, if any."""
    path = Path(node_list) if node_list else pods.with_name(_NODE_LIST)
    if not node_list and not path.is_file():
        return []
    table = read_table(path, NODE)
    cores, memory = table.counts("cpu_milli"), table.numbers("memory_mib", minimum=0)
    columns = (table.texts("sn"), table.texts("model"), cores, memory, table.counts("gpu"))
    return list(map(_node, *columns))


def _node(name: str, model: str, cpu_millis: int, memory_mib: float, gpus: int) -> Node:
    memory_bytes = round(memory_mib * 2**20)
    offers = {CPU: cpu_millis, MEMORY: memory_bytes, GPU: gpus, PODS: PODS_PER_NODE}
    labels = {HOSTNAME_LABEL: name} | ({GPU_MODEL_LABEL: model} if model else {})
    return Node(name, offers, labels)
