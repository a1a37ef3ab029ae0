"""Settings of the operator itself; decisions have their own.

:mod:`bireme.settings_source` reads them from a file (camelCase) and the environment
(``BIREME_`` + upper case), like :class:`bireme.core.settings.SchedulingSettings`.
"""

from dataclasses import dataclass
from typing import Annotated

from bireme.core.bounds import Above, OneOf, Within, check_bounds
from bireme.core.errors import SettingError
from bireme.kube.leadership import MAX_LEASE_SECONDS
from bireme.logs import LogLevel


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of the operator: watches, writes, waits and reports. Times in seconds."""

    mode: Annotated[str, OneOf(("Apply", "Observe"))] = "Apply"
    """Apply carries decisions out. Observe writes nothing to the cluster and says what it would
    do beside the scheduler in charge."""

    lease_namespace: str = "default"
    """Namespace of the leader election Lease; releases of a cluster are told apart by it."""

    lease_duration_seconds: Annotated[int, Within(1, MAX_LEASE_SECONDS)] = 15
    """Patience with a dead leader. Shorter fails over faster and renews more often."""

    metrics_host: str = "127.0.0.1"
    """Address that serves /healthz, /readyz and /metrics."""

    metrics_port: Annotated[int, Within(0, 65535)] = 8080
    """Port of the same; 0 turns the endpoint off."""

    cycle_debounce_seconds: Annotated[float, Within(0)] = 0.01
    """Pause between the first change and the cycle that acts on it, to gather a burst."""

    sweep_interval_seconds: Annotated[float, Within(0)] = 2.0
    """Least pause before gangs are looked at again without any change, 512 at a time, for deadlines
    and time limits; all are decided on again after 20 times as long as that takes."""

    write_concurrency: Annotated[int, Within(1)] = 32
    """Requests in flight at once. More does not help a small API server."""

    bind_timeout_seconds: Annotated[float, Within(0)] = 60.0
    """A gang not wholly on its nodes after this time, of whose pods kube-scheduler says nothing, is
    taken back and planned anew; where they have volumes to be provisioned, after 600 s at least."""

    start_timeout_seconds: Annotated[int, Within(1)] = 900
    """A gang that has its places for so long and does not run gives them back and is tried again
    later; its job and its queues may say otherwise. The pull of an image does not count, for up to
    an hour."""

    max_grace_seconds: Annotated[int, Within(1)] = 600
    """The most that counts of terminationGracePeriodSeconds where a gang is stopped: a pod that
    ignores the signal would else keep its place for as long as its template says."""

    max_bind_failures: Annotated[int, Within(0)] = 1
    """After so many failed starts in a row the pods of a gang are created without pins, and
    kube-scheduler chooses among the nodes by the extender's scores."""

    node_lost_seconds: Annotated[float, Within(0)] = 240.0
    """A node not ready for this long is lost, as is at once one that was deleted. Shorter restarts
    gangs sooner after a crash, and in vain after a blip; from 300 on Kubernetes evicts the pods
    first."""

    status_refresh_seconds: Annotated[float, Within(0)] = 10.0
    """Least time between changes of numbers alone (position, message) on a waiting object."""

    refresh_writes_per_second: Annotated[float, Within(0)] = 20.0
    """Ceiling over all objects for such writes."""

    template_check_seconds: Annotated[float, Within(0)] = 1.0
    """A job that has waited this long has its pods tried by a server-side dry run."""

    cycle_limit_seconds: Annotated[float, Above(0)] = 5.0
    """A cycle that has taken so long decides on no more gangs; the namespaces that it did not reach
    go first in the next one."""

    cycle_age_limit_seconds: Annotated[float, Within(0)] = 60.0
    """The liveness probe fails when the leader has shown no sign of life for so long: no turn of
    its loop has ended, and no gang has had its turn in a cycle."""

    record_directory: str = ""
    """Folder for records of what was seen and decided, for ``bireme replay``; empty for none."""

    record_file_bytes: Annotated[int, Within(0)] = 67_108_864
    """Size at which one file of a record ends and the next begins."""

    record_files: Annotated[int, Within(1)] = 16
    """The most files kept; the oldest is deleted for a new one."""

    progress_url: str = ""
    """Address under which pods reach the progress endpoint, such as
    https://bireme-progress.bireme-system.svc:8082; empty for no endpoint at all."""

    progress_host: str = "127.0.0.1"
    """Address on which it is served; 0.0.0.0 where pods are to reach it by a Service."""

    progress_port: Annotated[int, Within(0, 65535)] = 8082
    """Port of the same."""

    progress_cert_file: str = ""
    """Its TLS certificate, with those between it and the authority; empty for plain HTTP."""

    progress_key_file: str = ""
    """The private key of the certificate. Both files are read again when they change."""

    progress_ca_config_map: str = ""
    """ConfigMap in the namespaces of jobs whose ca.crt vouches for the certificate; empty where
    the usual authorities do."""

    progress_write_seconds: Annotated[float, Within(0)] = 30.0
    """Least time between writes of one job's progress into its status."""

    stalled_after_seconds: Annotated[float, Within(0)] = 1800.0
    """A running job counts as stalled when its progress reports have shown nothing new, or one of
    its replicas has not been ready, for so long; 0 for never. A job that reports once in an hour
    needs more than that."""

    checkpoint_directory: str = ""
    """Folder in which SchedulingPolicies name checkpoints; empty for those that come with Bireme
    alone."""

    debug_dump: bool = False
    """Serve /debug/dump on the metrics port, for whom the API server allows it."""

    outlook: bool = False
    """Keep an outlook of when everybody who waits should start, serve it as /outlook on the metrics
    port, each reader the namespaces whose jobs they may list, put it into the statuses of the heads
    of queues, serve the places that are kept for them as /reservations, and answer what-if
    questions as /what-if."""

    outlook_interval_seconds: Annotated[float, Within(0)] = 30.0
    """Least time between two renewals of the outlook, which follow changes of the line alone."""

    outlook_limit_seconds: Annotated[float, Above(0)] = 120.0
    """A renewal that takes longer is ended, and the outlook before stays; so is the answer to a
    what-if question."""

    outlook_memory_bytes: Annotated[int, Within(0)] = 536_870_912
    """The most memory of the process that looks ahead, beside that of the operator; 0 for no
    bound."""

    shadow_interval_seconds: Annotated[float, Within(0)] = 600.0
    """Least time between two moments from which a shadow and the active policy are played forward,
    to tell the shadow's regret; 0 for never. Moments closer than that share most of their jobs."""

    shadow_limit_seconds: Annotated[float, Above(0)] = 60.0
    """Such a moment is played for four fifths of this time, and given up after all of it."""

    shadow_core_share: Annotated[float, Within(0.001, 1)] = 0.05
    """The most of one processor core that playing takes in the long run: after each moment comes a
    rest, at 0.05 of 19 times as long as the moment took."""

    shadow_memory_bytes: Annotated[int, Within(0)] = 268_435_456
    """The most memory of the process that plays moments forward, beside that of the operator; 0 for
    no bound."""

    log_level: LogLevel = "info"
    """Least severity that is logged: debug, info, warning or error."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if bool(self.progress_cert_file) != bool(self.progress_key_file):
            raise SettingError(
                f"progress_cert_file is {self.progress_cert_file!r} and progress_key_file "
                f"{self.progress_key_file!r}; set both for TLS, or neither for plain HTTP"
            )
