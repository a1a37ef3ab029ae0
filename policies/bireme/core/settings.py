"""Everything about a decision that a person may change, with its default and its consequence.

One name in three spellings: ``wait_bound_seconds`` here, ``BIREME_WAIT_BOUND_SECONDS`` in the
environment, ``waitBoundSeconds`` in a settings file; :mod:`bireme.settings_source` reads both.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated

from bireme.core.accelerators import Accelerators, read_accelerators
from bireme.core.bounds import Distinct, Internal, Pairs, Within, check_bounds
from bireme.core.errors import SettingError
from bireme.core.gpus import read_gpu_models


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """Settings of every decision."""

    orderer: str = "combined-priority"
    """Orderer, which decides which gang starts first: a registered name, or
    ``package.module:Class``, with parameters after a question mark, as in
    ``tiresias-las?promote_knob=8``."""

    placer: str = "packing"
    """Placer, which chooses the nodes of a gang: a registered name, or ``package.module:Class``,
    with parameters as for the orderer."""

    sizer: str = ""
    """Sizer of elastic gangs: a registered name, or ``package.module:Class``, with parameters as
    for the orderer. Empty: ``goodput`` for gangs whose speed is known, and ``general``, the general
    rule, for others."""

    user_weight: Annotated[float, Within(0)] = 0.35
    """Weight of the queue's ``userPriority`` in the combined priority."""

    job_weight: Annotated[float, Within(0)] = 0.35
    """Weight of the job's PriorityClass in the combined priority."""

    wait_weight: Annotated[float, Within(0)] = 0.15
    """Weight of the time waited, as a share of the queue's wait bound."""

    parallelism_weight: Annotated[float, Within(0)] = 0.15
    """Weight of the number of replicas: wide gangs are harder to fit later, so they gain."""

    job_priority_half: Annotated[int, Within(1), Internal()] = 100
    """The PriorityClass value that counts as half of the highest possible job priority."""

    parallelism_half: Annotated[int, Within(1), Internal()] = 8
    """The number of replicas that counts as half of the highest possible parallelism."""

    service_threshold: Annotated[int, Within(0)] = 3600
    """The device-seconds of service at which a gang reaches level 1; each further level needs eight
    times as many. At a higher level its wait and its replicas count less. Among gangs of equal user
    and job priority, a lower level may stop a higher one. 0: service does not count."""

    service_half_life_seconds: Annotated[int, Within(0)] = 604_800
    """Half-life of the service that is charged to a namespace. Among gangs of equal user and job
    priority, those of namespaces with more service come later and may be stopped for the others. So
    a namespace gains nothing by cutting a training into short jobs. 0: service is charged to jobs
    alone."""

    service_preemption_delay_seconds: Annotated[int, Within(0), Internal()] = 300
    """A gang must wait this long before it stops gangs of equal user and job priority that have had
    more service. A stop loses the work since the last checkpoint, and many gangs start by
    themselves in this time. Elastic gangs shrink for it at once. 0: all stop at once."""

    preemption_cost_seconds: Annotated[int, Within(0)] = 900
    """Mean run time that a stop loses since the last checkpoint; the default fits a checkpoint
    every half hour. A gang that should end within this time is neither stopped nor shrunk for gangs
    that have had less service. A learned order stops others only for a gang that has waited this
    long. 0: neither rule applies."""

    wait_bound_seconds: Annotated[int, Within(1)] = 86_400
    """After this wait a gang goes before all others. A Queue may set its own."""

    wait_bound_run_factor: Annotated[float, Within(0), Internal()] = 8.0
    """A gang is past its wait bound only when its wait also exceeds this multiple of the time that
    it has run, or of its estimate if that is longer. Without it, long gangs would go before all
    short ones. A gang that has run waits 32 times as long. 0: only the bound counts."""

    overdue_share: Annotated[float, Within(0, 1)] = 0.25
    """Gangs past their wait bound go before all others while together they hold or request at most
    this share of the nodes they may use, and of each limit of their queues. The gangs that passed
    their bound first come first, and the very first goes whatever its size. 0: none of them. 1: all
    of them."""

    preemption: bool = True
    """Running gangs may be stopped for gangs that come before them."""

    min_runtime_seconds: Annotated[int, Within(0)] = 300
    """The time that a gang runs before it may be stopped for others. A job may set its own."""

    max_min_runtime_seconds: Annotated[int, Within(0)] = 3600
    """The largest minRuntimeSeconds that a job may set; a Queue may allow less. A large value
    protects runs that seldom save checkpoints, but queues must wait that long for their
    guarantee."""

    eviction_budget: Annotated[int, Within(0)] = 3
    """After this many stops for others, a gang may not be stopped again until it has run longer:
    see evictionBackoffSeconds."""

    eviction_backoff_seconds: Annotated[int, Within(0)] = 3600
    """After this run time, over all its starts, a gang may be stopped once more than
    evictionBudget, and once more at each doubling of the run time. 0: it may never be stopped
    again."""

    assume_resumable: bool = False
    """True: jobs count as able to resume after a stop, unless the job, a job like it or its queue
    says otherwise. Only such jobs are stopped for jobs of equal priority, moved to faster GPUs, and
    started in places reserved for others."""

    budget_override_priority: Annotated[int, Within(-(2**31), 2**31 - 1)] = 2_000_000_000
    """A gang whose PriorityClass has at least this value may stop gangs that a PodDisruptionBudget
    protects, if no others are enough. The default is the value of system-cluster-critical, above
    all classes of users. 2147483647 is above every class."""

    resize_settle_seconds: Annotated[int, Within(0)] = 60
    """The time that a running elastic gang keeps its size after a resize, at least."""

    namespace_pending_limit: Annotated[int, Within(1), Internal()] = 8192
    """A cycle considers at most this many waiting gangs of one namespace, the first in order, so
    that one tenant does not slow down others. The rest wait with the reason OverNamespaceLimit."""

    namespace_shape_limit: Annotated[int, Within(1), Internal()] = 4096
    """A cycle considers at most this cost of different shapes in one namespace. Each gang with a
    new shape costs the square of its number of tasks, because each task is placed beside each
    other."""

    topology_levels: Annotated[tuple[str, ...], Distinct()] = (
        "kubernetes.io/hostname",
        "topology.bireme.dev/rack",
        "topology.bireme.dev/block",
        "topology.kubernetes.io/zone",
    )
    """Node labels that name topology domains, narrowest first; a gang is packed into the first
    level that holds it. Nodes without a level's label belong to no domain of that level."""

    gpu_models: tuple[str, ...] = ()
    """Models of GPUs to add or override, each ``NAME=SPEED:DOLLARS``, such as ``R100=9.5:20``:
    words of the node label ``nvidia.com/gpu.product``, training speed relative to a V100, and
    dollars an hour. Gangs get the fastest GPUs that hold them."""

    accelerators: tuple[str, ...] = ()
    """Extended resources that are accelerators beside those that Bireme knows, such as
    ``example.com/npu``. A ``-`` in front marks one that is no accelerator, and ``*`` stands for any
    text. Service, sizes, processes per node, GPUS columns and metrics count accelerators."""

    gpu_units: Annotated[tuple[str, ...], Pairs()] = ()
    """The part of an accelerator that one unit of a resource is, each ``NAME=UNITS``, or a mapping
    in a file, such as ``nvidia.com/mig-1g.10gb: 0.125``. Other accelerators count 1. A Queue that
    limits ``bireme.dev/gpu`` limits the sum."""

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
