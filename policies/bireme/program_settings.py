"""Settings that operator and extender share, stated once for both."""

from dataclasses import dataclass

from bireme.logs import LogLevel


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Settings of each program of a cluster."""

    checkpoint_directory: str = ""
    """Folder of the checkpoints that SchedulingPolicies name; empty for only those that come with
    Bireme. Operator and extender read it, so that both judge nodes alike."""

    log_level: LogLevel = "info"
    """Minimum severity of log lines: debug, info, warning or error."""
