"""Settings of the operator itself; decisions have their own.

:mod:`bireme.settings_source` reads them from a file (camelCase) and the environment
(``BIREME_`` + upper case), like :class:`bireme.core.settings.SchedulingSettings`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bireme.core.bounds import Address, OneOf, Within, check_bounds, split_address
from bireme.core.errors import SettingError
from bireme.program_settings import ProgramSettings


@dataclass(frozen=True, slots=True)
class OperatorSettings(ProgramSettings):
    """Settings of the operator: role, addresses, waits and reports. Times in seconds."""

    mode: Annotated[str, OneOf(("Apply", "Observe"))] = "Apply"
    """Apply carries decisions out. Observe writes nothing to the cluster, and reports the decisions
    that it would carry out."""

    lease_namespace: str = "default"
    """Namespace of the leader election Lease. Each release in a cluster has its own."""

    metrics_address: Annotated[str, Address(may_be_empty=True)] = "127.0.0.1:8080"
    """Address that serves /healthz, /readyz and /metrics, as HOST:PORT; empty for none."""

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

    node_lost_seconds: Annotated[float, Within(0)] = 240.0
    """A node that is not ready for this long is lost; a deleted node is lost at once. A shorter
    time restarts gangs sooner after a crash, but also after a short outage. From 300 on Kubernetes
    evicts the pods first."""

    record_directory: str = ""
    """Folder for records of snapshots and decisions, for ``bireme replay``; empty for none."""

    progress_url: str = ""
    """Address at which pods reach the progress endpoint, such as
    https://bireme-progress.bireme-system.svc:8082; empty for no endpoint."""

    progress_address: str = "http://127.0.0.1:8082"
    """Address on which the progress endpoint listens: http://HOST:PORT, or
    https://HOST:PORT/FOLDER with a folder that holds the certificate tls.crt, with intermediate
    ones, and its key tls.key. Both files are read again when they change."""

    progress_ca_config_map: str = ""
    """ConfigMap in the namespaces of jobs whose ca.crt is the authority of the certificate; empty
    for public authorities."""

    stalled_after_seconds: Annotated[float, Within(0)] = 1800.0
    """A running job counts as stalled when its reports show no progress, or one of its replicas is
    not ready, for this long; 0 for never. The value must exceed the time between two reports of a
    job."""

    debug_dump: bool = False
    """Serve /debug/dump on the metrics port, to users whom the API server permits it."""

    outlook: bool = False
    """Predict the start of every waiting gang, and write it into the statuses of the first gangs of
    queues. On the metrics port, /v1/outlook serves these predictions and the places kept for
    gangs, and answers what-if questions. Each reader gets the namespaces whose jobs they may list.
    """

    def __post_init__(self) -> None:
        check_bounds(self)
        ProgressListener.parse(self.progress_address)


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """The place where the progress endpoint listens.

    Attributes:
        folder: Folder of tls.crt and tls.key; None for plain HTTP.
    """

    host: str
    port: int
    folder: Path | None

    @classmethod
    def parse(cls, text: str) -> "ProgressListener":
        """Return the listener that ``text``, the setting ``progress_address``, names.

        Raises:
            SettingError: it is no such address, or TLS and the folder are not stated together.
        """
        scheme, _, rest = text.partition("://")
        address, slash, folder = rest.partition("/")
        try:
            if (scheme, slash, bool(folder)) not in (("http", "", False), ("https", "/", True)):
                raise ValueError(text)
            return cls(*split_address(address), Path("/", folder) if folder else None)
        except ValueError:
            raise SettingError(
                f"progress_address is {text!r}; it must be http://HOST:PORT, or "
                "https://HOST:PORT/FOLDER with the folder of tls.crt and tls.key"
            ) from None
