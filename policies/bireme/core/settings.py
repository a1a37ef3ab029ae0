"""Everything about a decision that a person may change, with its default and its consequence.

One name in three spellings: ``wait_bound_seconds`` here, ``BIREME_WAIT_BOUND_SECONDS`` in the
environment, ``waitBoundSeconds`` in a settings file; :mod:`bireme.settings_source` reads both.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated

from bireme.core.accelerators import Accelerators, read_accelerators
from bireme.core.bounds import Distinct, Pairs, Within, check_bounds
from bireme.core.errors import SettingError
from bireme.core.gpus import read_gpu_models


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """Settings of every decision."""

    orderer: str = "combined-priority"
    """Orderer, which decides what starts first: a registered name, or ``package.module:Class``,
    and behind a question mark its parameters, as in ``tiresias-las?promote_knob=8``."""

    placer: str = "packing"
    """Placer, which decides where a gang goes: a registered name, or ``package.module:Class``,
    with parameters as the orderer has them."""

    sizer: str = ""
    """Sizer of elastic gangs: a registered name, or ``package.module:Class``, with parameters
    likewise. Empty: ``goodput`` for gangs whose speed is known, the general rule for others;
    ``general`` is that rule for all."""

    user_weight: Annotated[float, Within(0)] = 0.35
    """Weight of the queue's ``userPriority`` in the combined priority."""

    job_weight: Annotated[float, Within(0)] = 0.35
    """Weight of the job's PriorityClass in the combined priority."""

    wait_weight: Annotated[float, Within(0)] = 0.15
    """Weight of the time waited, as a share of the queue's wait bound."""

    parallelism_weight: Annotated[float, Within(0)] = 0.15
    """Weight of the number of replicas: wide gangs are harder to fit later, so they gain."""

    job_priority_half: Annotated[int, Within(1)] = 100
    """The PriorityClass value that counts as half of the highest possible job priority."""

    parallelism_half: Annotated[int, Within(1)] = 8
    """The number of replicas that counts as half of the highest possible parallelism."""

    service_threshold: Annotated[int, Within(0)] = 3600
    """The device-seconds from which the service of a gang counts, and again at every eightfold: the
    less its wait and its replicas count, and of gangs of equal user and job priority those that
    have had less stop those that have had more. 0: service counts for nothing."""

    service_half_life_seconds: Annotated[int, Within(0)] = 604_800
    """Service is charged to the namespace as well: of equal user and job priority, gangs of
    namespaces that have had more of it than those they compete with go behind and are stopped for
    the others, so that nobody wins by cutting a training into short jobs. After so long it counts
    half. 0: it is charged to jobs alone."""

    service_preemption_delay_seconds: Annotated[int, Within(0)] = 300
    """Only after it has waited so long does a gang stop those of equal user and job priority that
    have had more service: a stop loses what ran since the last checkpoint, and much starts by
    itself until then. Elastic ones shrink for it at once. 0: all stop at once."""

    preemption_cost_seconds: Annotated[int, Within(0)] = 900
    """What a stop costs, in run time since the last checkpoint: so much on the mean where there is
    one every half hour. A gang that is expected to end within this time is neither stopped nor
    shrunk for those that have had less service, and a learned order stops others only for a gang
    that has waited for as long. 0: neither holds."""

    wait_bound_seconds: Annotated[int, Within(1)] = 86_400
    """After this wait a gang goes before all others; a Queue may set its own."""

    wait_bound_run_factor: Annotated[float, Within(0)] = 8.0
    """A gang is past its wait bound only when it has also waited for so many times as long as it
    has run, or is expected to run by its estimate, whichever is longer: long ones would else go
    before all short ones. One that has run waits 32 times as long. 0: the bound alone counts."""

    overdue_share: Annotated[float, Within(0, 1)] = 0.25
    """Gangs past their wait bound go before all others as long as together they hold or ask for
    this share at most of the nodes they may use, and of each limit of their queues: those that
    passed it first, and the first whatever its size. 0: none of them. 1: all of them."""

    preemption: bool = True
    """Running gangs may be stopped for those that come before them."""

    min_runtime_seconds: Annotated[int, Within(0)] = 300
    """A gang is not stopped for others before it has run so long; a job may set its own."""

    max_min_runtime_seconds: Annotated[int, Within(0)] = 3600
    """The most that a job may set there; a Queue may say less. Longer protects runs that save
    checkpoints seldom, and keeps queues from what they are guaranteed for as long."""

    eviction_budget: Annotated[int, Within(0)] = 3
    """After a gang has been stopped for others so often, it is left alone until it has run longer:
    see evictionBackoffSeconds."""

    eviction_backoff_seconds: Annotated[int, Within(0)] = 3600
    """Once a gang has run for so long, over all its starts, it may be stopped once more than
    evictionBudget says, and once more each time that has doubled. 0: it is left alone for good."""

    assume_resumable: bool = False
    """Jobs count as able to resume after a stop where neither they nor a job like them nor their
    queue have said whether they can. Only such jobs are stopped for equals, moved to faster GPUs,
    and started in places that are reserved for others."""

    budget_override_priority: Annotated[int, Within(-(2**31), 2**31 - 1)] = 2_000_000_000
    """From this value of its PriorityClass on, a gang has others stopped although a
    PodDisruptionBudget keeps them, where no others are enough. The default is that of
    system-cluster-critical: no class of users has as much. 2147483647 is above all."""

    resize_settle_seconds: Annotated[int, Within(0)] = 60
    """After a resize a running elastic gang keeps its size for at least so long."""

    namespace_pending_limit: Annotated[int, Within(1)] = 8192
    """So many waiting gangs of one namespace, its first in order, are looked at in a cycle, so that
    one tenant does not slow down others. The rest waits with OverNamespaceLimit."""

    namespace_shape_limit: Annotated[int, Within(1)] = 4096
    """The same, of different shapes: a gang that asks as none before it of its namespace counts as
    the square of its number of tasks, since each is placed beside each other."""

    topology_levels: Annotated[tuple[str, ...], Distinct()] = (
        "kubernetes.io/hostname",
        "topology.bireme.dev/rack",
        "topology.bireme.dev/block",
        "topology.kubernetes.io/zone",
    )
    """Node labels that name topology domains, narrowest first; a gang is packed into the first
    level that holds it. Nodes without a level's label belong to no domain of that level."""

    gpu_models: tuple[str, ...] = ()
    """Models of GPUs that Bireme does not know, or knows otherwise, each ``NAME=SPEED:DOLLARS``:
    words of the node label ``nvidia.com/gpu.product``, training speed relative to a V100, and
    dollars an hour. ``R100=9.5:20``, for example. Gangs get the fastest GPUs that hold them."""

    accelerators: tuple[str, ...] = ()
    """Extended resources that are accelerators beside those that Bireme knows, such as
    ``example.com/npu``; with ``-`` in front, such that are none. ``*`` stands for any text.
    Service, sizes, processes per node, GPUS columns and metrics count them."""

    gpu_units: Annotated[tuple[str, ...], Pairs()] = ()
    """Which part of an accelerator a share is, each ``NAME=UNITS``, or in a file a mapping:
    ``nvidia.com/mig-1g.10gb: 0.125``, for example. What is not named counts 1. A Queue that limits
    ``bireme.dev/gpu`` limits the sum."""

    node_pool_label: str = "bireme.dev/node-pool"
    """The node label that names node pools, for policies that choose among them. Nodes without it
    form one pool."""

    def __post_init__(self) -> None:
        check_bounds(self)
        read_gpu_models(self.gpu_models)
        read_accelerators(self.accelerators, self.gpu_units)
        if self.min_runtime_seconds > self.max_min_runtime_seconds:
            raise SettingError(
                f"min_runtime_seconds is {self.min_runtime_seconds}, above max_min_runtime_seconds "
                f"{self.max_min_runtime_seconds}; raise the second or lower the first"
            )
        weights = (self.user_weight, self.job_weight, self.wait_weight, self.parallelism_weight)
        if not 0 < sum(weights) < inf:
            raise SettingError(
                f"the priority weights are {weights}; their sum must be above 0 and finite"
            )

    @property
    def known_accelerators(self) -> Accelerators:
        """The accelerators by the settings ``accelerators`` and ``gpu_units``."""
        return read_accelerators(self.accelerators, self.gpu_units)
