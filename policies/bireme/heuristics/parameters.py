"""Parameters of policies, checked where a policy is made, never in the middle of a decision."""

from math import inf

from bireme.core.errors import SettingError


def require(name: str, value: float, least: float, most: float = inf) -> None:
    """SettingError unless ``value`` is from ``least`` to ``most``; the text names the parameter."""
    if not least <= value <= most:
        remedy = f"from {least} to {most}" if most < inf else f"at least {least}"
        raise SettingError(f"{name} is {value}; it must be {remedy}")
