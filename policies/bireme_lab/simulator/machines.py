"""The nodes of a simulated cluster, from a short text.

``64x8,16x4`` is 64 nodes of 8 GPUs and 16 of 4, in that order. A rack is a run of nodes; all racks
are about equal.
"""

import re
from collections import Counter
from collections.abc import Sequence

from bireme.core.errors import SettingError
from bireme.core.gpus import GPU
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.settings import SchedulingSettings
from bireme_lab.simulator.cluster import RACK_LEVEL

POOL_LABEL = SchedulingSettings().node_pool_label
"""The label of a node's pool, which is its agent under a multi-agent policy."""

DELAY_SECONDS = 180.0
"""The default delay from the request of a node until it is ready."""

# Generous, so that GPUs are the limit, and in the proportion of a common server of 8 GPUs.
_CPU_MILLIS_PER_GPU = 12_000
_MEMORY_BYTES_PER_GPU = 128 * 2**30
_PODS = 110


def parse_nodes(text: str, racks: int | None = None) -> list[Node]:
    """Make nodes from ``COUNTxGPUS`` parts such as ``64x8,16x4``; SettingError for anything else.

    Each part is a node pool of its own. A node without GPUs is as large as one with 8.
    """
    parts = text.split(",")
    gpus: list[tuple[int, str]] = []
    for place, part in enumerate(parts):
        match = re.fullmatch(r"\s*(\d{1,6})x(\d{1,4})\s*", part, re.ASCII)
        if match is None or int(match[1]) == 0:
            raise SettingError(
                f"nodes is {text!r}, of which {part!r} is no COUNTxGPUS; write 64x8, or 64x8,16x4"
            )
        gpus += [(int(match[2]), _name_of("pool", place, len(parts)))] * int(match[1])
    if racks is not None and not 1 <= racks <= len(gpus):
        raise SettingError(f"racks is {racks}; give 1 to {len(gpus)}, the number of nodes")
    nodes = []
    for index, (count, pool) in enumerate(gpus):
        labels = {POOL_LABEL: pool}
        if racks is not None:
            labels[RACK_LEVEL] = _name_of("rack", index * racks // len(gpus), racks)
        name, size = _name_of("node", index, len(gpus)), count or 8
        amounts = size * _CPU_MILLIS_PER_GPU, size * _MEMORY_BYTES_PER_GPU
        nodes.append(_node(name, count, *amounts, labels))
    return nodes


def parse_pools(text: str, nodes: Sequence[Node]) -> list[tuple[str, int, int, float]]:
    """Return the pools of ``nodes``: name, minimum, maximum, seconds until a node is ready.

    ``text`` is one ``MIN`` or ``MIN:SECONDS`` for all pools, or one for each, separated by commas.
    Raises SettingError for anything else.
    """
    sizes = Counter(node.labels.get(POOL_LABEL, "") for node in nodes)
    if "" in sizes:
        raise SettingError("these nodes are in no pools; say which there are with --nodes 64x8")
    parts = text.split(",")
    if len(parts) not in (1, len(sizes)):
        raise SettingError(f"pools is {text!r} for {len(sizes)} pools; give one part, or one each")
    parts = parts * (len(sizes) // len(parts))
    pools = []
    for part, (name, size) in zip(parts, sizes.items(), strict=True):
        match = re.fullmatch(r"\s*(\d{1,6})(?::(\d{1,6}))?\s*", part, re.ASCII)
        if match is None or int(match[1]) > size:
            raise SettingError(
                f"pools is {text!r}, of which {part!r} is no MIN or MIN:SECONDS with a MIN of at "
                f"most {size}; write 4, or 4:180"
            )
        pools.append((name, int(match[1]), size, float(match[2] or DELAY_SECONDS)))
    return pools


def agent_nodes(counts: Sequence[tuple[int, int]]) -> list[Node]:
    """Make one node, a pool, per agent with its ``(CPU cores, GPUs)``, as TapFinger (Li et al.)."""
    for index, (cores, gpus) in enumerate(counts):
        if cores < 1 or gpus < 0:
            raise SettingError(
                f"pool {index} is ({cores}, {gpus}); give at least 1 CPU core and 0 or more GPUs"
            )
    names = [_name_of("pool", index, len(counts)) for index in range(len(counts))]
    return [
        _node(name, gpus, cores * 1000, max(gpus, 1) * _MEMORY_BYTES_PER_GPU, {POOL_LABEL: name})
        for name, (cores, gpus) in zip(names, counts, strict=True)
    ]


def _name_of(word: str, index: int, count: int) -> str:
    # Padded, so that the order by name is the order by number.
    return f"{word}-{index:0{len(str(count - 1))}}"


def _node(name: str, gpus: int, cpu_millis: int, memory_bytes: int, labels: dict[str, str]) -> Node:
    offers = {"cpu": cpu_millis, "memory": memory_bytes, "pods": _PODS}
    return Node(name, offers | ({GPU: gpus} if gpus else {}), {HOSTNAME_LABEL: name} | labels)
