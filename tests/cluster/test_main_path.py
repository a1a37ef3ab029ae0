"""The main path on the real control plane: apply, admission, bound gang, running, done."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.faultproxy import FaultProxy, Write
from testbed.scenario.clusters import gpu_cluster
from testbed.scenario.manifests import (
    annotations,
    pod,
    priority_class,
    queue,
    task,
    torch_job,
    training_job,
)
from testbed.scenario.tenant import Tenant, environment, nodes_of, uids_of

pytestmark = pytest.mark.cluster

SHORT = annotations(duration="2s")
SEEN = annotations(duration="6s")
"""Long enough that a slow machine sees it run."""
GPUS_OF_CLUSTER = 32


class ProxiedStack:
    """The stack with every write of operator and scheduler counted on its way."""

    def __init__(self, stack: BiremeStack, operator: FaultProxy, scheduler: FaultProxy) -> None:
        self.stack = stack
        self.operator = operator
        self.scheduler = scheduler


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedStack]:
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        cluster = enter(gpu_cluster("main"))
        operator = enter(FaultProxy(cluster.kubeconfig))
        scheduler = enter(FaultProxy(cluster.kubeconfig))
        kubeconfigs = {"operator-a": operator.kubeconfig, "kube-scheduler": scheduler.kubeconfig}
        folder = tmp_path_factory.mktemp("stack")
        often = {"status_refresh_seconds": 1.0}
        stack = enter(BiremeStack(cluster, folder, kubeconfigs=kubeconfigs, internals=often))
        yield ProxiedStack(stack.start(), operator, scheduler)


@pytest.fixture
def tenant(programs: ProxiedStack) -> Iterator[Tenant]:
    stack = programs.stack
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant


def test_torch_gang_is_bound_runs_and_succeeds(tenant: Tenant) -> None:
    tenant.create(torch_job("ddp", workers=3, gpus=2, fake=SEEN))
    running = tenant.await_phase("ddp", "Running")
    assert (running["ready"], running["gpus"], running["reason"]) == ("4/4", 8, "GangRunning")
    planned = {p["node"] for p in (tenant.plan("ddp") or {})["placements"]}
    bound = nodes_of(tenant.pods("ddp"))
    assert len(bound) == 4
    assert set(bound.values()) == planned
    assert len(planned) == 1, "eight GPUs fit one node, the smallest domain"

    done = tenant.await_phase("ddp", "Succeeded")
    assert (done["ready"], done["attempt"]) == ("4/4", 0)
    assert {"restarts", "interruptions"}.isdisjoint({k for k in done if done[k]})
    conditions = {c["type"]: c["status"] for c in done["conditions"]}
    assert conditions == {
        "Admitted": "True",
        "Running": "False",
        "Finished": "True",
        "Succeeded": "True",
    }
    tenant.eventually(lambda: tenant.plan("ddp"), lambda plan: plan is None)


def test_torch_replicas_find_each_other_by_name_and_rank(tenant: Tenant) -> None:
    tenant.create(torch_job("ranks", workers=3, gpus=2))
    tenant.await_phase("ranks", "Running")
    service = tenant.get("Service", "ranks")["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    pods = {p["metadata"]["name"]: p for p in tenant.pods("ranks")}
    seen = {name: environment(p) for name, p in pods.items()}
    master = f"ranks-master-0.ranks.{tenant.namespace}.svc"
    assert {v["RANK"] for v in seen.values()} == {"0", "1", "2", "3"}
    assert seen["ranks-master-0"]["RANK"] == "0"
    for name, variables in seen.items():
        assert variables["MASTER_ADDR"] == variables["PET_MASTER_ADDR"] == master
        assert variables["MASTER_PORT"] == variables["PET_MASTER_PORT"] == "29500"
        assert variables["WORLD_SIZE"] == variables["PET_NNODES"] == "4"
        assert variables["PET_NODE_RANK"] == variables["RANK"]
        assert variables["PET_NPROC_PER_NODE"] == "2"
        assert pods[name]["spec"]["hostname"] == name
        assert pods[name]["spec"]["subdomain"] == "ranks"
    (selected,) = service["selector"].items()
    assert all(p["metadata"]["labels"][selected[0]] == selected[1] for p in pods.values())


def test_tensorflow_replicas_are_given_the_whole_cluster(tenant: Tenant) -> None:
    tasks = (task("ps", 2), task("worker", 2), task("evaluator", 1))
    tenant.create(training_job("tf", *tasks, rendezvous="tensorflow"))
    tenant.await_phase("tf", "Running")
    configs = {
        p["metadata"]["name"]: json.loads(environment(p)["TF_CONFIG"]) for p in tenant.pods("tf")
    }
    suffix = f"tf.{tenant.namespace}.svc:2222"
    for name, config in configs.items():
        assert config["cluster"] == {
            "ps": [f"tf-ps-0.{suffix}", f"tf-ps-1.{suffix}"],
            "worker": [f"tf-worker-0.{suffix}", f"tf-worker-1.{suffix}"],
        }
        assert name == f"tf-{config['task']['type']}-{config['task']['index']}"
    assert len(configs) == 5


def test_parameter_servers_end_with_the_training(tenant: Tenant) -> None:
    tasks = (task("ps", 1), task("worker", 2, fake=SHORT))
    tenant.create(training_job("served", *tasks, rendezvous="tensorflow"))
    assert tenant.await_phase("served", "Succeeded")["reason"] == "Succeeded"
    tenant.await_gone("Pod", "served-ps-0")
    assert set(uids_of(tenant.pods("served"))) == {"served-worker-0", "served-worker-1"}


def test_full_cluster_is_given_out_by_combined_priority(tenant: Tenant) -> None:
    tenant.create(queue("favoured", userPriority=100), priority_class("urgent", 10_000))
    blocker = task(replicas=4, gpus=8)
    tenant.create(training_job("blocker", blocker))
    tenant.await_phase("blocker", "Running")
    whole = task(replicas=4, gpus=8, fake=SHORT)
    tenant.create(
        training_job("plain", whole),
        training_job("liked", whole, queue="favoured"),
        training_job("pressing", whole, queue="favoured", priorityClassName="urgent"),
    )
    expected = ["pressing", "liked", "plain"]
    tenant.eventually(
        lambda: [tenant.status(name).get("queuePosition") for name in expected],
        lambda positions: positions == [1, 2, 3],
    )
    for name in expected:
        status = tenant.status(name)
        assert (status["phase"], status["reason"]) == ("Pending", "WaitingForCapacity")
        factors = {f["name"]: f["contribution"] for f in status["priority"]["factors"]}
        assert sum(factors.values()) == pytest.approx(status["priority"]["score"], abs=1e-3)
        assert factors["userPriority"] == (0.175 if name == "plain" else 0.35)
    tenant.delete("TrainingJob", "blocker")
    ends = {name: tenant.await_phase(name, "Succeeded") for name in expected}
    assert sorted(expected, key=lambda name: ends[name]["startTime"]) == expected


def test_queue_limit_holds_a_job_until_the_queue_has_room(tenant: Tenant) -> None:
    tenant.create(queue("narrow", limit={"nvidia.com/gpu": "4"}))
    four = task(replicas=2, gpus=2)
    tenant.create(training_job("holder", four, queue="narrow"))
    tenant.await_phase("holder", "Running")
    tenant.create(training_job("waiter", four, queue="narrow"))
    status = tenant.await_reason("waiter", "OverQueueLimit")
    assert status["message"] == (
        "queue 'narrow': asks 4 nvidia.com/gpu, 4 nvidia.com/gpu of 4 nvidia.com/gpu in use"
    )
    assert tenant.pods("waiter") == []
    usage = tenant.eventually(
        lambda: tenant.get("Queue", "narrow").get("status", {}),
        lambda s: s.get("admitted") == s.get("pending") == 1,
    )
    assert usage["usage"]["nvidia.com/gpu"] == "4"
    tenant.delete("TrainingJob", "holder")
    tenant.await_phase("waiter", "Running")


def test_elastic_gang_starts_at_its_minimum_when_all_replicas_do_not_fit(tenant: Tenant) -> None:
    tenant.create(training_job("most", task(replicas=28)))
    tenant.await_phase("most", "Running")
    tenant.create(training_job("elastic", task(replicas=8, minReplicas=4)))
    status = tenant.await_phase("elastic", "Running")
    assert status["ready"] == "4/4"
    assert len(tenant.pods("elastic")) == 4


def writes_of(proxy: FaultProxy, tenant: Tenant, start: int) -> list[Write]:
    """Writes that the proxy let through for this tenant since the write number ``start``."""
    return [w for w in proxy.writes[start:] if f"/{tenant.namespace}/" in w.path]


def test_admission_of_n_pods_takes_at_most_n_creates_n_binds_and_two_more_writes(
    programs: ProxiedStack, tenant: Tenant
) -> None:
    replicas = 8
    since = len(programs.operator.writes), len(programs.scheduler.writes)
    tried = programs.operator.dry_runs
    tenant.create(training_job("counted", task(replicas=replicas)))
    tenant.await_phase("counted", "Running")
    sent = writes_of(programs.operator, tenant, since[0])
    creates = [w for w in sent if w.method == "POST" and w.path.endswith("/pods")]
    binds = [
        w for w in writes_of(programs.scheduler, tenant, since[1]) if w.path.endswith("/binding")
    ]
    assert (len(creates), len(binds)) == (replicas, replicas)
    assert len(sent) - len(creates) <= 2, sent  # admitted, and Running
    assert programs.operator.dry_runs - tried == 1  # of the one shape of its pods


def test_default_scheduler_serves_other_pods_while_bireme_is_down(
    programs: ProxiedStack, tenant: Tenant
) -> None:
    programs.stack.stop()
    try:
        tenant.create(pod("ordinary", fake=SHORT))
        tenant.eventually(lambda: tenant.get("Pod", "ordinary")["status"]["phase"] == "Succeeded")
        tenant.create(training_job("later"))
    finally:
        programs.stack.start()
    tenant.await_phase("later", "Running")


def test_printer_columns_tell_a_stranger_what_is_going_on(tenant: Tenant) -> None:
    tenant.create(torch_job("shown", workers=1), training_job("huge", task(replicas=99)))
    tenant.await_phase("shown", "Running")
    tenant.await_reason("huge", "NeverFits")
    table = tenant.cluster.kubectl("get", "btj", "-n", tenant.namespace)
    header, huge, shown = (line.split() for line in table.splitlines())
    columns = "NAME PHASE QUEUE PRIORITY READY GPUS POSITION REASON AGE"
    assert header == columns.split()
    assert shown[:3] == ["shown", "Running", "default"]
    assert shown[4:7] == ["2/2", "2", "GangRunning"], "no position: it does not wait"
    assert huge[:3] == ["huge", "Pending", "default"]
    assert "NeverFits" in huge
    wide = tenant.cluster.kubectl("get", "btj", "huge", "-n", tenant.namespace, "-o", "wide")
    assert f"at most {GPUS_OF_CLUSTER}" in wide


def test_status_of_a_wide_gang_stays_small(tenant: Tenant) -> None:
    tenant.create(training_job("wide", task(replicas=GPUS_OF_CLUSTER)))
    tenant.await_phase("wide", "Running")
    assert len(json.dumps(tenant.status("wide"))) < 4 * 1024
