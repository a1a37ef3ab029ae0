"""Ages and durations as kubectl prints them."""

from datetime import datetime


def age(timestamp: str | None, now: float) -> str:
    """Return an age as kubectl prints it: ``5s``, ``3m20s``, ``2h``, ``4d``."""
    if not timestamp:
        return "<unknown>"
    then = datetime.fromisoformat(timestamp).timestamp()
    return human_duration(now - then)


def human_duration(seconds: float) -> str:
    """Return a duration in the form of ``k8s.io/apimachinery/pkg/util/duration``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"
    days = hours // 24
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"
