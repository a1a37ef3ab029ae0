"""GPU models by their label, and speed-aware placement over new models."""

from dataclasses import replace

import pytest

from bireme.core.errors import SettingError
from bireme.core.gpus import (
    GPU,
    GPU_MODEL_LABEL,
    GPU_MODELS,
    NEWER_MODEL,
    UNKNOWN_MODEL,
    gpu_model,
    is_known_gpu_model,
    read_gpu_models,
)
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


def test_an_added_model_counts_before_the_table_and_not_for_others() -> None:
    added = read_gpu_models(("r100-nvl = 9.5:20", "H100=3.0:6"))
    assert [(m.name, m.speed, m.dollars_per_hour) for m in added] == [
        ("R100 NVL", 9.5, 20.0),
        ("H100", 3.0, 6.0),
    ]
    assert gpu_model("NVIDIA-R100-NVL-288GB", added).speed == 9.5
    assert gpu_model("NVIDIA-H100-PCIe", added).speed == 3.0
    assert gpu_model("NVIDIA-H200", added) == gpu_model("NVIDIA-H200")
    assert is_known_gpu_model("NVIDIA-R100-NVL-288GB", added)
    assert not is_known_gpu_model("NVIDIA-R100-NVL-288GB")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("R100",), "gpu_models has 'R100'; write NAME=SPEED:DOLLARS, such as R100=9.5:20"),
        (("R100=fast:20",), "gpu_models has 'R100=fast:20'; write NAME"),
        (("R100=0:20",), "speed \\(of a V100\\) and dollars an hour must be above 0"),
        (("R100=nan:20",), "must be above 0"),
        (("R100=1:2", "r100=2:2"), "gpu_models has 'R100' twice; leave one out"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_where_the_settings_are(
    texts: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        SchedulingSettings(gpu_models=texts)


def test_das_prefers_a_model_that_the_settings_call_faster() -> None:
    levels = SchedulingSettings().topology_levels
    nodes = [
        replace(a_node(name, 4), labels={**a_node(name, 4).labels, GPU_MODEL_LABEL: product})
        for name, product in (("a", "NVIDIA-H100-PCIe"), ("b", "Accelerator-X"))
    ]
    for texts, chosen in (((), "a"), (("ACCELERATOR-X=9.5:8",), "b")):
        table = NodeTable(nodes, levels, read_gpu_models(texts))
        capacity = FreeCapacity(table, table.fixed)
        placement = make_placer("das").place(a_gang("gang", a_task(1)), capacity)
        assert placement is not None
        assert [table.names[row] for row in placement.node_rows()] == [chosen], texts


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
