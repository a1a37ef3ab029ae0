"""Accelerators: the resources of pods and nodes that are GPUs and their like, and their weights.

A device plugin may offer anything as an extended resource: GPUs, parts of GPUs, network cards,
bytes and percentages of a GPU's memory, a file such as /dev/fuse. A number of processes, of held
GPUs, or of device-seconds makes sense only for the first two. So the name decides whether a
resource is an accelerator, and all code that counts devices uses this module.

The names are those of the device plugins and DRA drivers that their makers document. Administrators
add or remove names by the setting ``accelerators``. A share, such as a MIG instance, counts as one
accelerator unless the setting ``gpuUnits`` states its fraction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final

from bireme.core.errors import SettingError, find_duplicate

if TYPE_CHECKING:  # numpy: commands that only read objects do not wait for it
    from bireme.core.resources import Amounts, Request

GPU_UNITS: Final = "bireme.dev/gpu"
"""The resource in which queues limit and guarantee accelerators of any kind. No pod requests it;
its unit is a thousandth of an accelerator."""
MILLI: Final = 1000
_MAX_NAMES: Final = 4096

NAMES: Final = (
    *("nvidia.com/gpu", "nvidia.com/gpu.shared", "alpha.kubernetes.io/nvidia-gpu"),
    *("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
    *("google.com/tpu", "qualcomm.com/qaic", "graphcore.ai/ipu"),
    *("aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice"),
    *("k8s.amazonaws.com/vgpu", "koordinator.sh/gpu.shared"),
    *("volcano.sh/vgpu-number", "volcano.sh/gpu-number", "hygon.com/dcu", "hygon.com/dcunum"),
    *("metax-tech.com/sgpu", "mthreads.com/vgpu", "iluvatar.ai/vgpu"),
    *("kunlunxin.com/xpu", "kunlunxin.com/vxpu", "enflame.com/gcu", "enflame.com/vgcu"),
    *("alibabacloud.com/ppu", "aliyun.com/ppu"),
)
"""Resources that are accelerators."""

PATTERNS: Final = (
    *("nvidia.com/mig-*", "nvidia.com/gpu-*gb"),
    *("amd.com/spx_*", "amd.com/dpx_*", "amd.com/qpx_*", "amd.com/cpx_*"),
    *("huawei.com/ascend*", "cambricon.com/*mlu*", "iluvatar.ai/*-vgpu"),
    *("cloud-tpus.google.com/*", "furiosa.ai/*", "rebellions.ai/*", "tenstorrent.com/*"),
    *("*/gpu", "*/npu", "*/tpu", "*/xpu"),
    *("deviceclass.resource.kubernetes.io/gpu.*", "deviceclass.resource.kubernetes.io/mig.*"),
    *("deviceclass.resource.kubernetes.io/gaudi.*", "deviceclass.resource.kubernetes.io/tpu.*"),
    *("deviceclass.resource.kubernetes.io/neuron.*", "deviceclass.resource.kubernetes.io/npu.*"),
)
"""Patterns of accelerators with a variable part, unless :data:`NON_ACCELERATORS` has the name."""

NON_ACCELERATORS: Final = (
    # Network cards.
    *("rdma/*", "*rdma*", "*sriov*", "*/*nic", "*/*nics", "*/hca*", "*/*_hca*", "*/roce*"),
    *("vpc.amazonaws.com/*", "networking.gke.io/*", "mellanox.com/*", "openshift.io/*"),
    *("nvidia.com/hostdev*", "nvidia.com/res*", "*/efa*", "*-eni", "*/macvtap*", "*dranet*"),
    *("*/ib", "*/ib[-_0-9]*", "deviceclass.resource.kubernetes.io/dra.net*"),
    # Memory, cores and percentages of accelerators.
    *(
        "*mem",
        "*mem[._-]*",
        "*memory*",
        "*core",
        "*cores",
        "*core[._-]*",
        "*percent*",
        "*[._-]ratio*",
    ),
    *("gpu.intel.com/tiles", "koordinator.sh/gpu", "nvidia.com/priority"),
    # Files of the node, and devices that do not train.
    *(
        "*/fuse*",
        "*-fuse",
        "*/kvm",
        "*/tun",
        "*/vhost*",
        "devices.kubevirt.io/*",
        "smarter-devices/*",
    ),
    *("*_monitoring", "sgx.intel.com/*", "qat.intel.com/*", "dsa.intel.com/*", "iaa.intel.com/*"),
    *("hugepages-*", "squat.ai/*"),
)
"""Extended resources that are no accelerators; a name in :data:`NAMES` is one nevertheless."""


class Kind(Enum):
    """The kind of a resource, by whether training runs on it."""

    ACCELERATOR = auto()
    OTHER = auto()
    """No accelerator: cores, memory, network cards and the like."""
    UNKNOWN = auto()
    """An extended resource that no table or setting names."""


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The resources that are accelerators, and the fraction of one for which each counts.

    Attributes:
        added, removed: Names and patterns of the setting ``accelerators``.
        milli_units: Thousandths of an accelerator by name; a missing name counts 1000.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    milli_units: Mapping[str, int] = field(default_factory=dict)
    _kinds: dict[str, Kind] = field(default_factory=dict, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.added, self.removed, tuple(self.milli_units.items())))

    def kind(self, resource: str) -> Kind:
        """Return the kind of ``resource``."""
        # Called for each gang in each cycle. Tenants may request any number of names.
        if (kind := self._kinds.get(resource)) is None:
            kind = _kind(resource, self.added, self.removed)
            if len(self._kinds) < _MAX_NAMES:
                self._kinds[resource] = kind
        return kind

    def is_accelerator(self, resource: str) -> bool:
        """Return whether ``resource`` is an accelerator, or a share of one."""
        return self.kind(resource) is Kind.ACCELERATOR

    def count(self, amounts: Amounts | Request) -> int:
        """Return the accelerators in ``amounts``, each share as one."""
        return sum(n for name, n in _pairs(amounts) if self.is_accelerator(name))

    def largest(self, amounts: Amounts | Request) -> str:
        """Return the accelerator with the largest amount; empty for none."""
        requested = [(n, name) for name, n in _pairs(amounts) if n and self.is_accelerator(name)]
        return max(requested)[1] if requested else ""

    def milli(self, amounts: Amounts | Request) -> int:
        """Return the accelerators in ``amounts`` in thousandths, each share as its fraction."""
        return sum(
            n * self.milli_units.get(name, MILLI)
            for name, n in _pairs(amounts)
            if self.is_accelerator(name)
        )

    def units(self, amounts: Amounts | Request) -> int | float:
        """Return the accelerators in ``amounts``: an integer if it is whole."""
        return in_units(self.milli(amounts))

    def weight(self, resource: str) -> int | float:
        """Return the number of accelerators for which one ``resource`` counts."""
        return in_units(self.milli_units.get(resource, MILLI))

    def with_units(self, amounts: Amounts) -> Amounts:
        """Return ``amounts`` as queues count them: with :data:`GPU_UNITS`, if there are any."""
        milli = self.milli(amounts)
        return {**amounts, GPU_UNITS: milli} if milli else amounts


def in_units(milli: int) -> int | float:
    """Return thousandths of accelerators as accelerators: an integer if it is whole."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def _pairs(amounts: Amounts | Request) -> Iterable[tuple[str, int]]:
    return amounts.items() if isinstance(amounts, Mapping) else amounts


def _kind(resource: str, added: tuple[str, ...], removed: tuple[str, ...]) -> Kind:
    if _matches(resource, removed):
        return Kind.OTHER
    if resource in NAMES or _matches(resource, added):
        return Kind.ACCELERATOR
    if "/" not in resource or resource == GPU_UNITS or _matches(resource, NON_ACCELERATORS):
        return Kind.OTHER
    return Kind.ACCELERATOR if _matches(resource, PATTERNS) else Kind.UNKNOWN


def _matches(resource: str, patterns: tuple[str, ...]) -> bool:
    return any(_expression(pattern).fullmatch(resource) for pattern in patterns)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern: ``*`` is any text, ``[ab]`` one of these letters."""
    parts = re.split(r"(\*|\[[^]]+])", pattern)
    pieces = (p if p.startswith("[") else ".*" if p == "*" else re.escape(p) for p in parts)
    return re.compile("".join(pieces), re.IGNORECASE)


DEFAULT: Final = Accelerators()

_NAME: Final = re.compile(r"(?=.{3,316}\Z)[a-zA-Z0-9*][-a-zA-Z0-9.*]*/[-a-zA-Z0-9._*]+")
_UNITS: Final = re.compile(r"(?P<name>[^=]*[^=\s])\s*=\s*(?P<units>[^=]+)")
_EXAMPLE: Final = "NAME=UNITS, such as nvidia.com/mig-1g.10gb=0.125"


@cache
def read_accelerators(names: tuple[str, ...], units: tuple[str, ...] = ()) -> Accelerators:
    """Return the accelerators by the settings ``accelerators`` and ``gpu_units``.

    Raises:
        SettingError: a name is invalid or comes twice, or a name with units is no accelerator;
            units are no number of thousandths from 0.001 to 1000.
    """
    for text in names:
        if not _NAME.fullmatch(text.removeprefix("-")):
            raise SettingError(
                f"accelerators has {text!r}; write the name of an extended resource, such as"
                " example.com/npu, with - in front if it is no accelerator; * stands for any text"
            )
    twice = find_duplicate(text.removeprefix("-") for text in names)
    if twice is not None:
        raise SettingError(f"accelerators has {twice!r} twice; leave one out")
    added = tuple(text for text in names if not text.startswith("-"))
    removed = tuple(text[1:] for text in names if text.startswith("-"))
    unit_pairs = [_read_units(text) for text in units]
    twice = find_duplicate(name for name, _ in unit_pairs)
    if twice is not None:
        raise SettingError(f"gpu_units has {twice!r} twice; leave one out")
    accelerators = Accelerators(added, removed, dict(unit_pairs))
    for name, _ in unit_pairs:
        if not accelerators.is_accelerator(name):
            raise SettingError(
                f"gpu_units has {name!r}, which is no accelerator; correct the name, or add it to"
                " the setting accelerators"
            )
    return accelerators


def _read_units(text: str) -> tuple[str, int]:
    parts = _UNITS.fullmatch(text.strip())
    if parts is None:
        raise SettingError(f"gpu_units has {text!r}; write {_EXAMPLE}")
    try:
        milli = Fraction(parts["units"].strip()) * MILLI
    except (ValueError, ZeroDivisionError):
        raise SettingError(f"gpu_units has {text!r}; write {_EXAMPLE}") from None
    if milli.denominator != 1 or not 1 <= milli <= MILLI**2:
        raise SettingError(
            f"gpu_units has {text!r}; write a number from 0.001 to 1000 with at most three decimals"
        )
    return parts["name"], int(milli)
