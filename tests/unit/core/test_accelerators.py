"""Which resources are accelerators, by the names that device plugins and DRA drivers use."""

from dataclasses import replace

import pytest

from bireme.core.accelerators import DEFAULT, GPU_UNITS, Kind, read_accelerators
from bireme.core.errors import SettingError
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.resources import request_of
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.ranking import devices
from bireme.testing import GPU, a_gang, a_snapshot, a_task, racks

ACCELERATORS = """
nvidia.com/gpu nvidia.com/gpu.shared nvidia.com/mig-1g.10gb nvidia.com/mig-3g.20gb.me amd.com/gpu
amd.com/cpx_nps4 gpu.intel.com/i915 gpu.intel.com/xe habana.ai/gaudi google.com/tpu
aws.amazon.com/neuron aws.amazon.com/neuroncore aws.amazon.com/neurondevice huawei.com/Ascend910
huawei.com/Ascend310P huawei.com/Ascend910-2c.1cpu cambricon.com/mlu cambricon.com/mlu370
volcano.sh/vgpu-number iluvatar.ai/gpu iluvatar.ai/BI-V100-vgpu metax-tech.com/gpu example.com/gpu
furiosa.ai/rngd deviceclass.resource.kubernetes.io/gpu.nvidia.com
deviceclass.resource.kubernetes.io/mig.nvidia.com
"""
OTHERS = """
cpu memory pods hugepages-2Mi rdma/hca_shared_devices_a vpc.amazonaws.com/efa
intel.com/intel_sriov_netdevice mellanox.com/mlnx_sriov openshift.io/mlxnics nvidia.com/rdma_gpu
nvidia.com/gpumem nvidia.com/gpumem-percentage nvidia.com/gpucores gpu.intel.com/millicores
gpu.intel.com/memory.max gpu.intel.com/tiles gpu.intel.com/i915_monitoring volcano.sh/vgpu-memory
volcano.sh/vgpu-cores volcano.sh/vgpu-memory-percentage aliyun.com/gpu-mem
aliyun.com/gpu-core.percentage smarter-devices/fuse github.com/fuse devices.kubevirt.io/kvm
huawei.com/Ascend310P-memory tencent.com/vcuda-core koordinator.sh/gpu koordinator.sh/gpu-core
koordinator.sh/gpu-memory-ratio iluvatar.ai/vcuda-memory cambricon.com/mlu370.smlu.vmemory
cambricon.com/mlu.smlu.vcore hygon.com/dcumem hygon.com/dcucores bireme.dev/gpu
"""
CARDS = {"vpc.amazonaws.com/efa": 32, "nvidia.com/gpumem": 8000, "hugepages-2Mi": 2**30}
MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize("resource", ACCELERATORS.split())
def test_gpus_of_all_makers_and_their_shares_are_accelerators(resource: str) -> None:
    assert DEFAULT.kind(resource) is Kind.ACCELERATOR


@pytest.mark.parametrize("resource", OTHERS.split())
def test_network_cards_memory_cores_and_files_are_none(resource: str) -> None:
    assert DEFAULT.kind(resource) is Kind.OTHER


def test_what_nobody_has_said_anything_of_is_unknown_until_an_administrator_does() -> None:
    assert DEFAULT.kind("example.com/widget") is Kind.UNKNOWN
    known = read_accelerators(("example.com/w*", "-nvidia.com/mig-*", "rdma/odd"))
    assert known.is_accelerator("example.com/widget")
    assert known.is_accelerator("rdma/odd")
    assert known.kind("nvidia.com/mig-1g.10gb") is Kind.OTHER
    assert known.count({GPU: 2, MIG: 7, "example.com/widget": 3, "rdma/a": 9}) == 5


def test_shares_count_as_the_part_of_a_gpu_that_a_setting_says() -> None:
    known = read_accelerators((), (f"{MIG}=0.125", "nvidia.com/mig-3g.40gb = 0.5"))
    amounts = {GPU: 2, MIG: 3, "nvidia.com/mig-3g.40gb": 1, **CARDS}
    assert known.units(amounts) == 2.875
    assert known.with_units(amounts)[GPU_UNITS] == 2875
    assert known.units({MIG: 8}) == 1
    assert isinstance(known.units({MIG: 8}), int)
    assert known.with_units(CARDS) == CARDS


@pytest.mark.parametrize(
    ("names", "units", "words"),
    [
        (("gpu",), (), "accelerators has 'gpu'; write the name of an extended resource"),
        (("a.b/c", "-a.b/c"), (), "accelerators has 'a.b/c' twice"),
        ((), ("nvidia.com/gpu",), "gpu_units"),
        ((), ("nvidia.com/gpu=half",), "gpu_units has 'nvidia.com/gpu=half'; write NAME=UNITS"),
        ((), ("nvidia.com/gpu=0",), "from 0.001 to 1000"),
        ((), ("nvidia.com/gpu=0.0001",), "at most three decimals"),
        ((), ("nvidia.com/gpu=1", "nvidia.com/gpu=2"), "twice"),
        ((), ("rdma/a=0.5",), "gpu_units has 'rdma/a', which is no accelerator"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_with_the_remedy(
    names: tuple[str, ...], units: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        SchedulingSettings(accelerators=names, gpu_units=units)


# --- service and queues --------------------------------------------------------------------


def test_network_cards_and_memory_add_nothing_to_size_and_service() -> None:
    """As in the report of one job with gpumem, which had waited for hours behind one without."""
    task = a_task()
    cards = request_of({**dict(task.request), **CARDS})
    plain = replace(a_gang("plain", task, arrived=49_900), attained_seconds=600.0)
    shared = replace(a_gang("shared", replace(task, request=cards)), attained_seconds=600.0)
    snapshot = a_snapshot(racks(1, 1), plain, shared, now=50_000)
    assert devices(shared, snapshot) == devices(plain, snapshot) == 1
    first, _ = CombinedPriority().order([plain, shared], snapshot)
    assert first.gang.name == "shared", "it has waited longer"


def test_a_queue_that_names_units_admits_shares_up_to_their_sum() -> None:
    known = read_accelerators((), (f"{MIG}=0.125",))
    queues = {"team": Queue("team", limit={GPU_UNITS: 1500})}
    tree = QueueTree(queues, {"team": {GPU: 1, "cpu": 9}}, {GPU: 8}, known)
    assert tree.excess("team", {MIG: 4}) is None
    assert tree.excess("team", {MIG: 5}) == ("team", {GPU_UNITS: (625, 1000, 1500)})
    tree.take("team", {MIG: 4})
    assert tree.usage("team")[GPU_UNITS] == 1500
    assert tree.excess("team", {"cpu": 1}) is None
    tree.give_back("team", {GPU: 1})
    assert tree.usage("team")[GPU_UNITS] == 500


def test_a_queue_that_names_no_units_counts_as_before() -> None:
    tree = QueueTree({"team": Queue("team", limit={GPU: 2})}, {"team": {GPU: 1, MIG: 7}}, {GPU: 8})
    assert tree.usage("team") == {GPU: 1, MIG: 7}
    assert tree.excess("team", {MIG: 100}) is None
