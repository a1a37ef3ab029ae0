"""The nodes of a simulated cluster, from a short text.

``64x8,16x4`` is 64 nodes of 8 GPUs and 16 of 4, in that order. Racks take equal runs of them.
CPU and memory are generous and in proportion to the GPUs, so that GPUs decide what fits:
12 cores and 128 GiB of memory per GPU, as in a common 8-GPU server.
"""

import re
from collections import Counter
from collections.abc import Sequence

from bireme.core.errors import SettingError
from bireme.core.gpus import GPU
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.settings import SchedulingSettings
from bireme.simulator.cluster import RACK_LEVEL

POOL_LABEL = SchedulingSettings().node_pool_label
"""Which agent of a multi-agent policy a node belongs to."""

DELAY_SECONDS = 180.0
"""From asking for a node until it is there, where nothing else was said."""

_CPU_MILLIS_PER_GPU = 12_000
_MEMORY_BYTES_PER_GPU = 128 * 2**30
_PODS = 110


def parse_nodes(text: str, racks: int | None = None) -> list[Node]:
    """Nodes from ``COUNTxGPUS`` parts such as ``64x8,16x4``, over ``racks`` racks if given.

    Each part is a node pool of its own. A node without GPUs is as large as one with 8. Raises
    SettingError for anything else.
    """
    parts = text.split(",")
    gpus = [
        (count, _numbered("pool", place, len(parts)))
        for place, part in enumerate(parts)
        for count in _part(text, part)
    ]
    if racks is not None and not 1 <= racks <= len(gpus):
        raise SettingError(f"racks is {racks}; give 1 to {len(gpus)}, the number of nodes")
    return [
        _node(
            _numbered("node", index, len(gpus)),
            count,
            (count or 8) * _CPU_MILLIS_PER_GPU,
            (count or 8) * _MEMORY_BYTES_PER_GPU,
            {POOL_LABEL: pool}
            | ({} if racks is None else _in_rack(index * racks // len(gpus), racks)),
        )
        for index, (count, pool) in enumerate(gpus)
    ]


def parse_pools(text: str, nodes: Sequence[Node]) -> list[tuple[str, int, int, float]]:
    """The node pools of ``nodes``: name, fewest and most nodes, seconds until a node is there.

    ``text`` is ``MIN`` or ``MIN:SECONDS`` for all of them, or one such for each with commas
    between. Raises SettingError for anything else.
    """
    sizes = Counter(node.labels.get(POOL_LABEL, "") for node in nodes)
    if "" in sizes:
        raise SettingError("these nodes are in no pools; say which there are with --nodes 64x8")
    parts = text.split(",")
    if len(parts) not in (1, len(sizes)):
        raise SettingError(f"pools is {text!r} for {len(sizes)} pools; give one part, or one each")
    parts = parts * (len(sizes) // len(parts))
    return [
        (name, *_least(text, part, size))
        for part, (name, size) in zip(parts, sizes.items(), strict=True)
    ]


def _least(text: str, part: str, size: int) -> tuple[int, int, float]:
    match = re.fullmatch(r"\s*(\d{1,6})(?::(\d{1,6}))?\s*", part, re.ASCII)
    if match is None or int(match[1]) > size:
        raise SettingError(
            f"pools is {text!r}, of which {part!r} is no MIN or MIN:SECONDS with a MIN of at most "
            f"{size}; write 4, or 4:180"
        )
    return int(match[1]), size, float(match[2] or DELAY_SECONDS)


def pools(counts: Sequence[tuple[int, int]]) -> list[Node]:
    """One node per agent with its ``(CPU cores, GPUs)``, as in TapFinger (Li et al.).

    The pools differ by their label :data:`POOL_LABEL`, ``pool-0`` for the first.
    """
    for index, (cores, gpus) in enumerate(counts):
        if cores < 1 or gpus < 0:
            raise SettingError(
                f"pool {index} is ({cores}, {gpus}); give at least 1 CPU core and 0 or more GPUs"
            )
    names = [_numbered("pool", index, len(counts)) for index in range(len(counts))]
    return [
        _node(name, gpus, cores * 1000, max(gpus, 1) * _MEMORY_BYTES_PER_GPU, {POOL_LABEL: name})
        for name, (cores, gpus) in zip(names, counts, strict=True)
    ]


def _part(text: str, part: str) -> list[int]:
    match = re.fullmatch(r"\s*(\d{1,6})x(\d{1,4})\s*", part, re.ASCII)
    if match is None or int(match[1]) == 0:
        raise SettingError(
            f"nodes is {text!r}, of which {part!r} is no COUNTxGPUS; write 64x8, or 64x8,16x4"
        )
    return [int(match[2])] * int(match[1])


def _in_rack(rack: int, racks: int) -> dict[str, str]:
    return {RACK_LEVEL: _numbered("rack", rack, racks)}


def _numbered(word: str, index: int, count: int) -> str:
    """Padded, so that the order by name is the order by number."""
    return f"{word}-{index:0{len(str(count - 1))}}"


def _node(name: str, gpus: int, cpu_millis: int, memory_bytes: int, labels: dict[str, str]) -> Node:
    offers = {"cpu": cpu_millis, "memory": memory_bytes, "pods": _PODS}
    return Node(name, offers | ({GPU: gpus} if gpus else {}), {HOSTNAME_LABEL: name} | labels)
