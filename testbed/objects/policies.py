"""SchedulingPolicies as a reflector hands them over, and waits for what is loaded beside them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from bireme.kube import quantities, wire
from bireme.kube.policy_source import PolicyFacts, SchedulingPolicies, from_manifest
from testbed.objects.facts import CREATED, served, through_the_wire
from testbed.scenario.manifests import scheduling_policy


def a_policy(
    name: str,
    *,
    age: float = 0.0,
    generation: int = 1,
    status: Mapping[str, Any] | None = None,
    uid: str = "",
    **spec: Any,
) -> wire.CustomObject:
    """Return a SchedulingPolicy created ``age`` seconds before the others; FIFO by default."""
    spec = spec or {"orderer": "fifo"}
    made = served(
        scheduling_policy(name, **spec),
        uid or f"{name}-uid",
        namespace="",
        generation=generation,
        creationTimestamp=quantities.format_timestamp(CREATED - age),
    )
    return through_the_wire({**made, "status": dict(status or {})}, wire.CustomObject)


def facts_of(name: str, **fields: Any) -> PolicyFacts:
    return from_manifest(a_policy(name, **fields))


def put(policies: SchedulingPolicies, name: str, **fields: Any) -> PolicyFacts:
    policies.put(("", name), a_policy(name, **fields))
    return policies.known[name]


def delete(policies: SchedulingPolicies, name: str) -> None:
    policies.delete(("", name))


async def settled(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)
