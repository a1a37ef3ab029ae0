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
    """Address to listen on. kube-scheduler can prove its identity to an extender only by TLS, so
    anything but loopback lets the network ask questions."""

    extender_port: Annotated[int, Within(1, 65535)] = 8888
    """Port of the verbs, health checks and metrics."""

    metrics_host: str = "127.0.0.1"
    """Address to listen on at metricsPort; 0.0.0.0 where the kubelet and Prometheus ask."""

    metrics_port: Annotated[int, Within(0, 65535)] = 0
    """Port of the health checks and metrics alone, without the verbs; 0 for none of its own."""

    plan_wait_seconds: Annotated[float, Within(0, 1)] = 0.2
    """Longest wait of a filter call for a plan that the watch has not delivered yet; at most
    once per pod. Must stay well below the scheduler's ``httpTimeout``."""

    body_limit_bytes: Annotated[int, Within(1)] = 8 * 2**20
    """Longer request bodies are refused unread. 20000 node names and a pod take about 1 MiB."""

    body_timeout_seconds: Annotated[float, Above(0)] = 2.0
    """A request body that is not complete after so long is refused."""

    contact_limit_seconds: Annotated[float, Above(0)] = 90.0
    """Not ready when a watch has been silent for so long; bookmarks come about once a minute."""

    checkpoint_directory: str = ""
    """Folder in which SchedulingPolicies name checkpoints; empty for those that come with Bireme
    alone. Give it the operator's, or both judge nodes differently."""

    log_level: LogLevel = "info"
    """Least severity that is logged: debug, info, warning or error."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.metrics_port == self.extender_port:
            raise SettingError(
                f"metrics_port is {self.metrics_port}, as is extender_port; use another,"
                " or 0 for none"
            )
