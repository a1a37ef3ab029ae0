"""Settings of the extender, each with its default and its consequence."""

from dataclasses import dataclass
from typing import Annotated

from bireme.core.bounds import Address, check_bounds
from bireme.core.errors import SettingError
from bireme.program_settings import ProgramSettings


@dataclass(frozen=True, slots=True)
class ExtenderSettings(ProgramSettings):
    """Settings of the extender: its addresses."""

    extender_address: Annotated[str, Address()] = "127.0.0.1:8888"
    """Address of the verbs, health checks and metrics, as HOST:PORT. kube-scheduler can prove its
    identity to an extender only by TLS, so an address other than loopback answers the whole
    network."""

    metrics_address: Annotated[str, Address(may_be_empty=True)] = ""
    """Address of the health checks and metrics without the verbs, as HOST:PORT, for the kubelet and
    Prometheus; empty for none."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.metrics_address.rpartition(":")[2] == self.extender_address.rpartition(":")[2]:
            raise SettingError(
                f"metrics_address is {self.metrics_address!r}, with the port of extender_address;"
                " use another, or leave it empty for none"
            )
