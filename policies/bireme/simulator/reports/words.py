"""Numbers as people read them: durations with a unit, shares in percent, short policy names."""

from collections.abc import Callable, Sequence
from typing import Final

_UNITS: Final = (
    (172_800.0, 86_400.0, "d"),
    (6_000.0, 3_600.0, "h"),
    (100.0, 60.0, "min"),
    (0.995, 1.0, "s"),
    (0.0, 0.001, "ms"),
)
"""From how many seconds on, seconds per unit, unit."""
_LARGE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e5, "k"))


def duration(seconds: float) -> str:
    """``40 ms``, ``75 s``, ``12 min``, ``3.4 h``, ``2.1 d``."""
    if not seconds:
        return "0 s"
    per, unit = next((per, unit) for least, per, unit in _UNITS if abs(seconds) >= least)
    return f"{digits(seconds / per)} {unit}"


def digits(value: float) -> str:
    """Two or three digits that count: ``0.07``, ``3.4``, ``128``, ``2.5 M``."""
    size = abs(value)
    for least, letter in _LARGE:
        if size >= least:
            return f"{value / (1e3 if letter == 'k' else least):.3g} {letter}"
    if size >= 9.95 or not size:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 0.995 else f"{value:.2f}"


def power(exponent: int) -> str:
    """Ten to the ``exponent``: ``1``, ``100``, ``10 k``, ``1 M``."""
    thousands, rest = divmod(exponent, 3)
    return f"{10**rest} {' kMGTPE'[thousands]}".strip() if thousands < 7 else f"1e{exponent}"


def ratio(value: float) -> str:
    """``0.71x``."""
    return f"{value:.2f}x" if value < 9.95 else f"{digits(value)}x"


def share(value: float) -> str:
    """``87.2 %``."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """``64,483``; a small mean of counts over seeds keeps one decimal."""
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:.1f}"


def worded(key: str) -> Callable[[float], str]:
    """How values of a key of metrics are written."""
    if key.endswith("_seconds"):
        return duration
    if key in ("gpu_utilisation", "mean_fragmentation"):
        return share
    return digits if key.endswith(("slowdown", "fairness")) else count


def plural(number: int, noun: str) -> str:
    """``1 seed``, ``3 seeds``, ``2 policies``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def short_names(policies: Sequence[str]) -> list[str]:
    """``policies`` without the parts (orderer/placer/sizer) in which all of them are alike."""
    parts = [policy.split("/") for policy in policies]
    if len(policies) < 2 or len({len(one) for one in parts}) > 1:
        return list(policies)
    differing = [at for at in range(len(parts[0])) if len({one[at] for one in parts}) > 1]
    return ["/".join(one[at] for at in differing) or "/".join(one) for one in parts]
