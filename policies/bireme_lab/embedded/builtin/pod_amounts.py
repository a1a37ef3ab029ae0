"""Requests and limits of a whole pod, of its containers or stated for all of them.

Source: ``k8s.io/component-helpers/resource/helpers.go``.
"""

from typing import Final

from bireme_lab.embedded.amounts import Amounts, highest, parse_amounts, total
from bireme_lab.embedded.api.errors import Object

POD_LEVEL: Final = ("cpu", "memory")
"""Resources, beside huge pages, that a pod may state for all its containers."""


def pod_level_amounts(spec: Object, field: str) -> Amounts:
    """Return the requests or limits that a pod states for all its containers."""
    stated = parse_amounts((spec.get("resources") or {}).get(field))
    return {name: amount for name, amount in stated.items() if is_pod_level(name)}


def is_pod_level(name: str) -> bool:
    """Return whether a pod may state a resource for all its containers."""
    return name in POD_LEVEL or is_huge(name)


def is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def amounts_of_containers(spec: Object, field: str) -> Amounts:
    """Return requests or limits of all containers; init containers count by their maximum."""

    def amounts(container: Object) -> Amounts:
        return parse_amounts((container.get("resources") or {}).get(field))

    running = total(amounts(item) for item in spec.get("containers") or ())
    sidecars: Amounts = {}
    initial: Amounts = {}
    for item in spec.get("initContainers") or ():
        if item.get("restartPolicy") == "Always":
            running, sidecars = total((running, amounts(item))), total((sidecars, amounts(item)))
            initial = highest(initial, sidecars)
        else:
            initial = highest(initial, total((amounts(item), sidecars)))
    return highest(running, initial)


def amounts_of_pod(spec: Object, field: str) -> Amounts:
    """Return the requests or limits of a pod without its overhead."""
    return amounts_of_containers(spec, field) | pod_level_amounts(spec, field)


def requests_of_pod(spec: Object) -> Amounts:
    """Return what a pod asks of its node."""
    return total((amounts_of_pod(spec, "requests"), parse_amounts(spec.get("overhead"))))
