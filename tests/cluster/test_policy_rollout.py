"""Rollout of policies on a real control plane: a canary, and a policy that turns bad."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import GPU, queue, scheduling_policy, training_job
from testbed.scenario.tenant import Tenant, nodes_of

pytestmark = pytest.mark.cluster

MODULE = '''
"""Policies of a user's own, of which two are good until a file appears."""

from pathlib import Path

from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.simple_orderers import Fifo

BAD, BACKWARDS = (Path(__file__).with_name(name) for name in ("bad", "backwards"))


class TurnsBad(CombinedPriority):
    def order(self, gangs, snapshot):
        ranked = super().order(gangs, snapshot)
        return ranked[:-1] if BAD.exists() else ranked


class TurnsBackwards(Fifo):
    def order(self, gangs, snapshot):
        ranked = super().order(gangs, snapshot)
        return ranked[::-1] if BACKWARDS.exists() else ranked


class LastNode:
    def place(self, gang, capacity):
        from bireme.core.placement import placement_at

        (task,) = gang.tasks
        free = capacity.replicas(task)
        fits = [row for row in range(len(free)) if free[row] >= task.replicas]
        places = {task.name: {capacity.nodes.names[fits[-1]]: task.replicas}} if fits else None
        return placement_at(places, capacity.nodes) if places else None
'''


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's module, which the operator can import."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "mine.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def stack(modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Sixteen GPUs on two nodes."""
    env = {
        "PYTHONPATH": f"{modules}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    internals = {
        "status_refresh_seconds": 1.0,
        "sweep_interval_seconds": 0.5,
        # An outcome of forty moments takes seven hours with the real values.
        "shadow_interval_seconds": 0.1,
        "shadow_core_share": 1.0,
    }
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("rollout", folder, env, nodes=2, internals=internals) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
        tenant.cluster.kubectl("delete", "bsp", "--all")


def condition(tenant: Tenant, name: str, kind: str) -> str:
    """A condition of a policy, as ``status reason``."""
    status = tenant.status(name, "SchedulingPolicy")
    found = {c["type"]: f"{c['status']} {c['reason']}" for c in status.get("conditions", ())}
    return found.get(kind, "Unknown")


def nodes(tenant: Tenant, name: str, **spec: str) -> set[str]:
    """The nodes of a new job of one GPU, once it runs."""
    tenant.create(training_job(name, **spec))
    tenant.await_phase(name, "Running")
    return set(nodes_of(tenant.pods(name)).values())


def metrics_of(stack: BiremeStack) -> list[str]:
    port = stack.operator().port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode()).splitlines()


def test_a_policy_that_turns_bad_is_rolled_back_and_the_jobs_go_on(
    tenant: Tenant, stack: BiremeStack, modules: Path
) -> None:
    pid = stack.operator().pid
    rollout = {"rollBack": "Automatic"}
    tenant.create(scheduling_policy("mine", orderer="mine:TurnsBad", rollout=rollout))
    loaded = "True PolicyLoaded"
    tenant.eventually(lambda: condition(tenant, "mine", "Loaded"), lambda found: found == loaded)
    limited = queue("small", limit={GPU: 1})
    tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(limited))
    nodes(tenant, "before", queue="small")
    assert tenant.status("mine", "SchedulingPolicy")["stage"] == "Active"
    # One that waits for its queue, so that every sweep has a cycle, in which its order counts.
    tenant.create(training_job("waits", queue="small"))

    (modules / "bad").touch()
    nodes(tenant, "during")
    done = "True RulesAnswered"
    tenant.eventually(
        lambda: condition(tenant, "mine", "RolledBack"), lambda found: found == done, 60.0
    )
    policy = tenant.get("SchedulingPolicy", "mine")
    assert policy["status"]["stage"] == "RolledBack"
    assert policy["spec"]["stage"] == "Active", "the spec is its author's"
    nodes(tenant, "after")
    assert tenant.status("before")["phase"] == "Running"
    assert stack.operator().pid == pid
    lines = metrics_of(stack)
    assert 'bireme_policy_stage{policy="mine",stage="RolledBack"} 1.0' in lines
    assert 'bireme_policy_rollbacks_total{reason="RulesAnswered"} 1.0' in lines
    assert 'bireme_policy_deciding{policy="mine"} 0.0' in lines
    reasons = tenant.cluster.kubectl("get", "events", "-n", "default", "-o=jsonpath={..reason}")
    assert "RulesAnswered" in reasons.split()
    shown = tenant.cluster.kubectl("get", "bsp", "mine").splitlines()
    assert " ".join(shown[1].split()).startswith("mine RolledBack False"), shown
    told = subprocess.run(
        [sys.executable, "-m", "bireme.cli", "policies", "mine"],
        env={**os.environ, "KUBECONFIG": str(tenant.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert "rolled back" in told.splitlines()[0]
    assert "of its latest 20 cycles" in told

    # Another leader reads it in the status, though by now its answers would be good.
    (modules / "bad").unlink()
    stack.operator().terminate()
    stack.operator().start().wait_ready()
    nodes(tenant, "later")
    assert 'bireme_policy_stage{policy="mine",stage="RolledBack"} 1.0' in metrics_of(stack)
    # A change of its spec begins anew.
    tenant.patch("SchedulingPolicy", "mine", {"spec": {"rollout": {"minimumSamples": 50}}})
    tenant.eventually(lambda: condition(tenant, "mine", "Loaded"), lambda found: found == loaded)
    assert tenant.status("mine", "SchedulingPolicy")["stage"] == "Active"
    tenant.delete("TrainingJob", "waits")
    tenant.cluster.kubectl("delete", "bq", "small", "--wait=false")


def test_a_policy_whose_valid_answers_make_jobs_later_is_rolled_back_by_its_outcomes(
    tenant: Tenant, stack: BiremeStack, modules: Path
) -> None:
    limited = queue("line", limit={GPU: 1})
    tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(limited))
    rollout = {"rollBack": "Automatic"}
    tenant.create(scheduling_policy("order", orderer="mine:TurnsBackwards", rollout=rollout))
    # One runs and four wait; backwards, the long one goes before the short ones.
    nodes(tenant, "runs", queue="line", estimatedDuration="10m")
    waiting = {"short-0": "1m", "short-1": "1m", "short-2": "1m", "long": "8h"}
    for name, seconds in waiting.items():
        time.sleep(1.1)  # arrivals count in whole seconds, and ties have no order to turn around
        tenant.create(training_job(name, queue="line", estimatedDuration=seconds))

    def compared() -> dict[str, Any]:
        found: dict[str, Any] = tenant.status("order", "SchedulingPolicy")
        return found

    def samples() -> int:
        return int(compared().get("shadow", {}).get("samples", 0))

    tenant.eventually(samples)
    status = compared()
    assert status["shadow"]["regret"] == 0.0, "the settings would do the same"
    assert status["stage"] == "Active"

    (modules / "backwards").touch()
    tenant.eventually(
        lambda: condition(tenant, "order", "RolledBack"),
        lambda found: found == "True OutcomeWorse",
        600.0,  # what plays is niced: of a busy machine it gets little
    )
    assert compared()["stage"] == "RolledBack"
    conditions = {c["type"]: c for c in compared()["conditions"]}
    said = conditions["RolledBack"]["message"]
    assert "compared with the policy of the settings: with its decisions gangs would take" in said
    assert said.endswith("; the settings decide now")
    lines = metrics_of(stack)
    assert any('rollbacks_total{reason="OutcomeWorse"}' in line for line in lines)
    # The settings decide: the oldest of the line goes first.
    tenant.delete("TrainingJob", "runs")
    tenant.await_phase("short-0", "Running")
    assert not tenant.pods("long")
    for name in waiting:
        tenant.delete("TrainingJob", name)
    tenant.cluster.kubectl("delete", "bq", "line", "--wait=false")


def test_a_canary_places_the_jobs_of_its_queue_alone(tenant: Tenant) -> None:
    tenant.cluster.kubectl("apply", "-f", "-", input=json.dumps(queue("research")))
    (usual,) = nodes(tenant, "first")
    scope = {"stage": "Canary", "canary": {"queues": ["research"]}}
    tenant.create(scheduling_policy("canary", placer="mine:LastNode", **scope))
    told = "True PolicyLoaded"
    tenant.eventually(lambda: condition(tenant, "canary", "Loaded"), lambda found: found == told)
    assert nodes(tenant, "plain") == {usual}
    assert nodes(tenant, "tried", queue="research") == {"gpu-01"}
    status = tenant.eventually(
        lambda: tenant.status("canary", "SchedulingPolicy"), lambda found: found.get("decisions")
    )
    assert status["stage"] == "Canary"
    tenant.delete("TrainingJob", "tried")
    tenant.cluster.kubectl("delete", "bq", "research", "--wait=false")
