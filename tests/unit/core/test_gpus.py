"""GPU models by their label, and speed-aware placement over new models."""

from dataclasses import replace

import pytest

from bireme.core.gpus import GPU, GPU_MODEL_LABEL, GPU_MODELS, NEWER_MODEL, UNKNOWN_MODEL, gpu_model
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_placer
from bireme.testing import a_gang, a_node, a_task


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("Tesla-T4", "T4"),
        ("Tesla-K80", "K80"),
        ("Tesla-P100-PCIE-16GB", "P100"),
        ("Tesla-V100-SXM2-16GB", "V100"),
        ("V100M32", "V100"),
        ("NVIDIA-A100-SXM4-40GB", "A100"),
        ("NVIDIA-A100-SXM4-80GB", "A100"),
        ("nvidia-a100-80gb-pcie", "A100"),
        ("NVIDIA-A10", "A10"),
        ("NVIDIA-A10G", "A10"),
        ("NVIDIA-A2", "A2"),
        ("NVIDIA-A30", "A30"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-L40", "L40"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-H100-PCIe", "H100"),
        ("NVIDIA-GH200-480GB", "GH200"),
        ("NVIDIA-H20", "H20"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA-B200", "B200"),
        ("NVIDIA-GB200", "GB200"),
        ("NVIDIA-RTX-A6000", "RTX A6000"),
        ("NVIDIA-RTX-6000-Ada-Generation", "RTX 6000 ADA"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000"),
        ("Quadro-RTX-6000", "RTX 6000"),
        ("NVIDIA-GeForce-RTX-4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 TI"),
    ],
)
def test_the_product_name_gives_the_model(product: str, name: str) -> None:
    assert gpu_model(product).name == name


@pytest.mark.parametrize("product", ["", "MIT4", "G2", "A", "GeForce-GTX-780", "Tesla-C2075"])
def test_a_name_that_is_unknown_counts_as_a_v100(product: str) -> None:
    assert gpu_model(product) is UNKNOWN_MODEL
    assert (UNKNOWN_MODEL.speed, UNKNOWN_MODEL.dollars_per_hour) == (1.0, 2.48)


@pytest.mark.parametrize("product", ["NVIDIA-R100-288GB", "NVIDIA-C3", "nvidia-x9000-nvl"])
def test_a_model_that_is_newer_than_the_table_is_slower_than_none(product: str) -> None:
    assert gpu_model(product) is NEWER_MODEL
    assert NEWER_MODEL.speed == max(model.speed for model in GPU_MODELS)


@pytest.mark.parametrize("product", ["NVIDIA-GeForce-GTX-780", "NVIDIA-Quadro-K620"])
def test_an_old_workstation_model_is_not_taken_for_a_new_one(product: str) -> None:
    assert gpu_model(product) is UNKNOWN_MODEL


def test_models_are_listed_from_slow_to_fast_and_found_by_their_own_name() -> None:
    speeds = [model.speed for model in GPU_MODELS]
    assert speeds == sorted(speeds)
    assert [gpu_model(model.name) for model in GPU_MODELS] == list(GPU_MODELS)


@pytest.mark.parametrize("slow", ["NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-16GB", "Tesla-T4"])
@pytest.mark.parametrize("fast", ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200"])
@pytest.mark.parametrize("replicas", [1, 4])
def test_das_prefers_the_newer_of_two_free_models(slow: str, fast: str, replicas: int) -> None:
    levels = SchedulingSettings().topology_levels
    nodes = [
        replace(a_node(name, 4), labels={**a_node(name, 4).labels, GPU_MODEL_LABEL: product})
        for name, product in (("a", slow), ("b", fast))
    ]
    table = NodeTable(nodes, levels)
    placement = make_placer("das").place(
        a_gang("gang", a_task(replicas)), FreeCapacity(table, table.fixed)
    )
    assert placement is not None
    assert [table.names[row] for row in placement.node_rows()] == ["b"]
    assert GPU in table.axis.names
