"""SchedulingPolicies as a reflector hands them over, and waits for what is loaded beside them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from bireme.kube import quantities, wire
from bireme.kube.policy_source import PolicyFacts, SchedulingPolicies, from_manifest
from tests.support.objects.facts import CREATED, served, through_the_wire
from tests.support.scenario.manifests import scheduling_policy


def a_policy(
    name: str,
    *,
    age: float = 0.0,
    generation: int = 1,
    status: Mapping[str, Any] | None = None,
    uid: str = "",
    **spec: Any,
) -> wire.CustomObject:
    """A SchedulingPolicy created ``age`` seconds before the others; FIFO unless told otherwise."""
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
    """What is known of such a policy."""
    return from_manifest(a_policy(name, **fields))


def put(policies: SchedulingPolicies, name: str, **fields: Any) -> PolicyFacts:
    """Have ``policies`` see such a policy."""
    policies.put(("", name), a_policy(name, **fields))
    return policies.known[name]


def delete(policies: SchedulingPolicies, name: str) -> None:
    """Have ``policies`` see that it is gone."""
    policies.delete(("", name), a_policy(name))


async def settled(is_so: Callable[[], object]) -> None:
    """Returns when ``is_so``; the event loop runs meanwhile."""
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)
