"""Settings of the extender, each with its default and its consequence."""

from dataclasses import dataclass
from typing import Annotated

from bireme.core.bounds import Above, Within, check_bounds
from bireme.core.errors import SettingError
from bireme.logs import LogLevel


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Settings of the extender: addresses, waits, and the limits that protect it."""

    extender_host: str = "127.0.0.1"
    """Address of the verbs, health checks and metrics. kube-scheduler can prove its identity to an
    extender only by TLS, so an address other than loopback answers the whole network."""

    extender_port: Annotated[int, Within(1, 65535)] = 8888
    """Port of the verbs, health checks and metrics."""

    metrics_host: str = "127.0.0.1"
    """Address to listen on at metricsPort; 0.0.0.0 for requests of the kubelet and Prometheus."""

    metrics_port: Annotated[int, Within(0, 65535)] = 0
    """Port of the health checks and metrics without the verbs; 0 for no such port."""

    plan_wait_seconds: Annotated[float, Within(0, 1)] = 0.2
    """Maximum time that a filter call waits for a plan that the watch has not delivered yet, at
    most once per pod. It must be well below the scheduler's ``httpTimeout``."""

    body_limit_bytes: Annotated[int, Within(1)] = 8 * 2**20
    """Maximum size of a request body. 20000 node names and a pod take about 1 MiB."""

    body_timeout_seconds: Annotated[float, Above(0)] = 2.0
    """Maximum time for a request body to arrive. Later ones are refused."""

    contact_limit_seconds: Annotated[float, Above(0)] = 90.0
    """The extender is not ready when a watch has been silent for this long. Bookmarks come about
    once a minute."""

    checkpoint_directory: str = ""
    """Folder of the checkpoints that SchedulingPolicies name; empty for only those that come with
    Bireme. Use the operator's folder, or both judge nodes differently."""

    log_level: LogLevel = "info"
    """Minimum severity of log lines: debug, info, warning or error."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.metrics_port == self.extender_port:
            raise SettingError(
                f"metrics_port is {self.metrics_port}, as is extender_port; use another,"
                " or 0 for none"
            )
