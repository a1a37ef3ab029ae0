"""Times as people say them."""

from typing import Final

_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"))


def lasting(seconds: float) -> str:
    """A length of time in its two largest units, such as ``2h5m`` or ``40s``."""
    left = max(0, int(seconds))
    said = []
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        if count:
            said.append(f"{count}{unit}")
    if not said or (len(said) == 1 and left and said[0].endswith("m")):
        said.append(f"{left}s")
    return "".join(said[:2])
