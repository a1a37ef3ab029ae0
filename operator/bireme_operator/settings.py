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
    """Apply carries decisions out. Observe writes nothing to the cluster, and reports the decisions
    that it would carry out."""

    lease_namespace: str = "default"
    """Namespace of the leader election Lease. Each release in a cluster has its own."""

    lease_duration_seconds: Annotated[int, Within(1, MAX_LEASE_SECONDS)] = 15
    """Time after which a standby replaces a leader that no longer renews. A shorter time fails over
    faster and renews more often."""

    metrics_host: str = "127.0.0.1"
    """Address that serves /healthz, /readyz and /metrics."""

    metrics_port: Annotated[int, Within(0, 65535)] = 8080
    """Port that serves /healthz, /readyz and /metrics; 0 turns them off."""

    cycle_debounce_seconds: Annotated[float, Within(0)] = 0.01
    """Pause between the first change and the cycle that acts on it, to gather a burst."""

    sweep_interval_seconds: Annotated[float, Within(0)] = 2.0
    """Minimum pause before gangs are checked again without a change, 512 at a time, for deadlines
    and time limits. A full cycle without changes follows after 20 times the duration of such a
    check."""

    write_concurrency: Annotated[int, Within(1)] = 32
    """Maximum number of concurrent requests to the API server. More does not help a small API
    server."""

    bind_timeout_seconds: Annotated[float, Within(0)] = 60.0
    """If kube-scheduler has neither bound nor rejected all pods of a gang after this time, Bireme
    plans the gang again. For pods with volumes to provision it waits at least 600 s."""

    start_timeout_seconds: Annotated[int, Within(1)] = 900
    """A gang that does not run this long after it got its places gives them back and is tried again
    later. Its job and its queues may set another time. Image pulls do not count, for up to an
    hour."""

    max_grace_seconds: Annotated[int, Within(1)] = 600
    """Upper bound on terminationGracePeriodSeconds when Bireme stops a gang. It bounds the time for
    which a pod that ignores the signal keeps its place."""

    max_bind_failures: Annotated[int, Within(0)] = 1
    """After this many failed starts in a row, the pods of a gang get no pins, and kube-scheduler
    chooses the nodes by the extender's scores."""

    node_lost_seconds: Annotated[float, Within(0)] = 240.0
    """A node that is not ready for this long is lost; a deleted node is lost at once. A shorter
    time restarts gangs sooner after a crash, but also after a short outage. From 300 on Kubernetes
    evicts the pods first."""

    status_refresh_seconds: Annotated[float, Within(0)] = 10.0
    """Minimum time between two writes to a waiting object that change only numbers (position,
    message)."""

    refresh_writes_per_second: Annotated[float, Within(0)] = 20.0
    """Maximum rate of such writes over all objects."""

    template_check_seconds: Annotated[float, Within(0)] = 1.0
    """After this wait a server-side dry run checks the pods of a job."""

    cycle_limit_seconds: Annotated[float, Above(0)] = 5.0
    """After this time a cycle decides on no more gangs. The next cycle begins with the namespaces
    that it did not reach."""

    cycle_age_limit_seconds: Annotated[float, Within(0)] = 60.0
    """The liveness probe fails when for this long no turn of the leader's loop has ended and no
    cycle has decided on a gang."""

    record_directory: str = ""
    """Folder for records of snapshots and decisions, for ``bireme replay``; empty for none."""

    record_file_bytes: Annotated[int, Within(0)] = 67_108_864
    """Size at which one file of a record ends and the next begins."""

    record_files: Annotated[int, Within(1)] = 16
    """Maximum number of files of a record. A new file replaces the oldest one."""

    progress_url: str = ""
    """Address at which pods reach the progress endpoint, such as
    https://bireme-progress.bireme-system.svc:8082; empty for no endpoint."""

    progress_host: str = "127.0.0.1"
    """Address on which the progress endpoint listens; 0.0.0.0 if pods reach it by a Service."""

    progress_port: Annotated[int, Within(0, 65535)] = 8082
    """Port on which the progress endpoint listens."""

    progress_cert_file: str = ""
    """TLS certificate of the progress endpoint, with intermediate certificates; empty for plain
    HTTP."""

    progress_key_file: str = ""
    """The private key of the certificate. Both files are read again when they change."""

    progress_ca_config_map: str = ""
    """ConfigMap in the namespaces of jobs whose ca.crt is the authority of the certificate; empty
    for public authorities."""

    progress_write_seconds: Annotated[float, Within(0)] = 30.0
    """Minimum time between two writes of a job's progress into its status."""

    stalled_after_seconds: Annotated[float, Within(0)] = 1800.0
    """A running job counts as stalled when its reports show no progress, or one of its replicas is
    not ready, for this long; 0 for never. The value must exceed the time between two reports of a
    job."""

    checkpoint_directory: str = ""
    """Folder of the checkpoints that SchedulingPolicies name; empty for only those that come with
    Bireme."""

    debug_dump: bool = False
    """Serve /debug/dump on the metrics port, to users whom the API server permits it."""

    outlook: bool = False
    """Predict the start of every waiting gang, and write it into the statuses of the first gangs of
    queues. On the metrics port, /outlook serves these predictions, /reservations the places kept
    for gangs, and /what-if answers questions. Each reader gets the namespaces whose jobs they may
    list."""

    outlook_interval_seconds: Annotated[float, Within(0)] = 30.0
    """Minimum time between two renewals of the outlook. Only changes of the waiting gangs cause
    renewals."""

    outlook_limit_seconds: Annotated[float, Above(0)] = 120.0
    """A renewal of the outlook that takes longer is ended, and the last outlook stays. A what-if
    question that takes longer is ended too."""

    outlook_memory_bytes: Annotated[int, Within(0)] = 536_870_912
    """Maximum memory of the process that computes the outlook, in addition to the operator's; 0 for
    no bound."""

    shadow_interval_seconds: Annotated[float, Within(0)] = 600.0
    """Minimum time between two samples of a shadow's regret; 0 for never. A sample simulates the
    jobs of one moment with the shadow and with the active policy. Samples that are closer together
    share most of their jobs."""

    shadow_limit_seconds: Annotated[float, Above(0)] = 60.0
    """Time limit of one sample. The simulation stops after four fifths of it; after all of it the
    sample is given up."""

    shadow_core_share: Annotated[float, Within(0.001, 1)] = 0.05
    """Maximum share of one processor core that samples take in the long run. At 0.05 a pause
    follows each sample, 19 times as long as the sample took."""

    shadow_memory_bytes: Annotated[int, Within(0)] = 268_435_456
    """Maximum memory of the process that computes samples, in addition to the operator's; 0 for no
    bound."""

    log_level: LogLevel = "info"
    """Minimum severity of log lines: debug, info, warning or error."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if bool(self.progress_cert_file) != bool(self.progress_key_file):
            raise SettingError(
                f"progress_cert_file is {self.progress_cert_file!r} and progress_key_file "
                f"{self.progress_key_file!r}; set both for TLS, or neither for plain HTTP"
            )
