"""How many tasks a node finishes in an hour, and how many nodes a number of tasks takes.

Equations 2 and 3 of the paper of RLPTO and LSP: the rate is smoothed exponentially over the days,

    rate_new = rho * rate_old + (1 - rho) * rate_past,     nodes = tasks / rate_new
"""

from collections.abc import Iterable

from bireme.core.errors import SettingError

RHO = 0.8
"""Weight of what was known before the last observation."""


def task_rate(observed: Iterable[float], rho: float = RHO) -> float:
    """Tasks per node and hour, smoothed; the first observation is what is known at first.

    Args:
        observed: Tasks per node and hour, oldest first, at least one, none below 0.
        rho: From 0 to 1.

    Raises:
        SettingError: a value is not so.
    """
    rates = list(observed)
    if not rates or not 0 <= rho <= 1 or not all(0 <= rate < float("inf") for rate in rates):
        raise SettingError(
            f"{len(rates)} rates and rho {rho}: give at least one finite rate, none below 0, "
            "and rho from 0 to 1"
        )
    smoothed = rates[0]
    for past in rates[1:]:
        smoothed = rho * smoothed + (1 - rho) * past
    return smoothed


def nodes_for(tasks: float, rate: float) -> float:
    """Nodes that ``tasks`` per hour take at ``rate`` tasks per node and hour; not rounded.

    Raises:
        SettingError: ``rate`` is not above 0.
    """
    if rate <= 0:
        raise SettingError(
            f"rate is {rate} tasks per node and hour; without finished tasks measure Demand instead"
        )
    return tasks / rate
