"""What must happen at once: within 10 s, or three times what a stock pod takes in the same run."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from testbed.scenario.manifests import Manifest, pod_spec
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import always

_SECONDS: Final = 10.0
_STOCK_PODS: Final = 3.0


@contextmanager
def at_once(tenant: Tenant) -> Iterator[None]:
    """Fail unless the block ends in time.

    Only after a block of more than 10 s a stock pod is measured, on the machine that was so slow.
    """
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took > _SECONDS:
        stock = _stock_pod_seconds(tenant)
        words = f"took {took:.1f} s, and a pod of the default scheduler {stock:.1f} s"
        assert took <= _STOCK_PODS * stock, words


def _stock_pod_seconds(tenant: Tenant) -> float:
    """Return how long the default scheduler and a node take for a pod that asks for nothing."""
    name = f"stock-{secrets.token_hex(2)}"
    spec = pod_spec(0, cpu="1m", tolerations=[{"operator": "Exists"}])
    began = time.monotonic()
    tenant.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    tenant.eventually(lambda: tenant.status(name, "Pod").get("phase"), lambda p: p == "Running")
    took = time.monotonic() - began
    tenant.delete("Pod", name, grace_seconds=0)
    return took


def starts_at_once(tenant: Tenant, name: str = "job") -> Manifest:
    """Return the status of a job that runs in time and by its first plan."""
    with at_once(tenant):
        status = tenant.await_phase(name, "Running")
    counts = ("attempt", "interruptions", "startFailures")
    assert {count: status.get(count, 0) for count in counts} == dict.fromkeys(counts, 0)
    return status


def waits_at_once(tenant: Tenant, words: str, name: str = "job") -> str:
    """Return the message of a job that says ``words`` in time and holds nothing."""
    with at_once(tenant):
        message: str = tenant.eventually(
            lambda: tenant.status(name).get("message", ""), lambda said: words in said
        )
    always(
        lambda: (tenant.plan(name), tenant.pods(name)),
        lambda held: held == (None, []),
        1.0,
        what="without plan and pods",
    )
    return message
