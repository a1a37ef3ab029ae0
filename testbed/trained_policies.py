"""A leading operator whose policies are trained: small checkpoints, and what becomes of them."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from bireme.kube import names
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.networks import checkpoints
from testbed.operator_term.term import (
    PODS,
    events_about,
    leading,
    status,
    submit,
    until,
    with_conditions,
)
from testbed.scenario.manifests import Manifest, scheduling_policy, training_job

POLICIES = names.path("schedulingpolicies")
FIRST_NODE, LAST_NODE = (0.0, -1.0, 0.0), (0.0, 1.0, 0.0)
MIN_FIRST = (-1.0, 0.0, 0.0)
SMALLEST = (-1.0, 0.0, 0.0)


def train(folder: Path) -> Path:
    """Write checkpoints: placers on the ``last`` or ``first`` node, ``fewest`` devices first.

    ``smallest`` gives elastic gangs as few replicas as they may have.
    In-process only: their encoders are those of :mod:`testbed.networks.encoders`.
    """
    checkpoints.write(folder / "last", placer=LAST_NODE)
    checkpoints.write(folder / "first", placer=FIRST_NODE)
    checkpoints.write(folder / "fewest", orderer=MIN_FIRST)
    checkpoints.write(folder / "smallest", sizer=SMALLEST)
    return folder


def put_policy(api: FakeApi, name: str, **spec: Any) -> None:
    api.put(f"{POLICIES}/{name}", scheduling_policy(name, **spec))


def delete_policy(api: FakeApi, name: str) -> None:
    api.store.delete(POLICIES, ("", name), {})


def trained_by(name: str, **fields: Any) -> Manifest:
    return {"checkpoint": {"name": name}, **fields}


def status_in(api: FakeApi, name: str = "policy") -> dict[str, Any]:
    return with_conditions(api, POLICIES, name)


def words(api: FakeApi, condition: str, name: str = "policy") -> str:
    found = api.store.get(POLICIES, ("", name))["status"]["conditions"]
    return next(str(each["message"]) for each in found if each["type"] == condition)


def events(api: FakeApi) -> list[Object]:
    return events_about(api, "SchedulingPolicy")


async def becomes(api: FakeApi, loaded: str, name: str = "policy") -> None:
    """Return once the condition Loaded is so, as ``status reason``."""
    await until(lambda: status_in(api, name)["conditions"].get("Loaded") == loaded)


def leads(
    api: FakeApi, folder: Path, trained: Path, **settings: Any
) -> AbstractAsyncContextManager[LeaderTerm]:
    """Lead a term that finds checkpoints in ``trained`` and writes numbers often."""
    often = {"checkpoint_directory": str(trained), "status_refresh_seconds": 0.3}
    return leading(api, folder, **{**often, **settings})


async def node_of(api: FakeApi, name: str) -> str:
    """Return the node of a new job of one GPU."""
    submit(api, training_job(name))
    await until(lambda: status(api, name).get("phase") == "Running")
    found = api.store.collection(PODS).objects
    return str(found["default", f"{name}-worker-0"]["spec"]["nodeName"])


def metric(term: LeaderTerm, name: str, **labels: str) -> float | None:
    return term.metrics.registry.get_sample_value(f"bireme_{name}", labels)
