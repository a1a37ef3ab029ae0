"""Settings of the extender, each with its default and its consequence."""

from dataclasses import dataclass

from bireme.core.errors import SettingError
from bireme.logs import check_level


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Settings of the extender: addresses, waits, and the limits that protect it."""

    extender_host: str = "127.0.0.1"
    """Address to listen on. kube-scheduler can prove its identity to an extender only by TLS, so
    anything but loopback lets the network ask questions."""

    extender_port: int = 8888
    """Port of the verbs, health checks and metrics."""

    metrics_host: str = "127.0.0.1"
    """Address to listen on at metricsPort; 0.0.0.0 where the kubelet and Prometheus ask."""

    metrics_port: int = 0
    """Port of the health checks and metrics alone, without the verbs; 0 for none of its own."""

    plan_wait_seconds: float = 0.2
    """Longest wait of a filter call for a plan that the watch has not delivered yet; at most
    once per pod. Must stay well below the scheduler's ``httpTimeout``."""

    body_limit_bytes: int = 8 * 2**20
    """Longer request bodies are refused unread. 20000 node names and a pod take about 1 MiB."""

    body_timeout_seconds: float = 2.0
    """A request body that is not complete after so long is refused."""

    contact_limit_seconds: float = 90.0
    """Not ready when a watch has been silent for so long; bookmarks come about once a minute."""

    checkpoint_directory: str = ""
    """Folder in which SchedulingPolicies name checkpoints; empty for those that come with Bireme
    alone. Give it the operator's, or both judge nodes differently."""

    log_level: str = "info"
    """Least severity that is logged: debug, info, warning or error."""

    def __post_init__(self) -> None:
        if not 1 <= self.extender_port <= 65535:
            raise SettingError(f"extender_port is {self.extender_port}; use 1 to 65535")
        if not 0 <= self.metrics_port <= 65535 or self.metrics_port == self.extender_port:
            raise SettingError(
                f"metrics_port is {self.metrics_port}; use 1 to 65535, another one than"
                " extender_port, or 0 for none"
            )
        if not 0 <= self.plan_wait_seconds <= 1:
            raise SettingError(f"plan_wait_seconds is {self.plan_wait_seconds}; use 0 to 1")
        if self.body_limit_bytes < 1:
            raise SettingError(f"body_limit_bytes is {self.body_limit_bytes}; use at least 1")
        for name in ("body_timeout_seconds", "contact_limit_seconds"):
            if getattr(self, name) <= 0:
                raise SettingError(f"{name} is {getattr(self, name)}; it must be above 0")
        check_level(self.log_level)
