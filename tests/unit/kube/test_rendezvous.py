"""Rendezvous of the replicas of a gang."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.accelerators import read_accelerators
from bireme.core.settings import SchedulingSettings
from bireme.kube import pod_builder
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_builder import Rendezvous
from bireme.kube.training_jobs import JobFacts
from testbed.objects.facts import a_job, a_plan
from testbed.scenario.manifests import GPU, pod_spec, task


def environments(job: JobFacts, plan: PlanFacts | None = None) -> Iterator[dict[str, str]]:
    """The variables of every replica, in the order of the plan."""
    plan = plan or a_plan(job)
    made = Rendezvous(job, plan)
    for member in plan.members:
        yield made.environment(member.task, member.index)


def torch(*tasks: dict[str, Any]) -> JobFacts:
    return a_job(*tasks, rendezvous="torch")


@st.composite
def torch_jobs(draw: st.DrawFn) -> JobFacts:
    """A job with or without a master and some worker tasks in any order and of any priority."""
    workers = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    tasks = [
        task(f"w{i}", n, role="worker", priority=draw(st.integers(0, 3)))
        for i, n in enumerate(workers)
    ]
    if draw(st.booleans()):
        tasks.append(task("lead", role="master", priority=draw(st.integers(0, 3))))
    return torch(*draw(st.permutations(tasks)))


@given(torch_jobs())
def test_torch_ranks_are_unique_and_dense_and_the_master_is_rank_zero(job: JobFacts) -> None:
    plan = a_plan(job)
    made = list(environments(job, plan))
    world = len(made)
    assert sorted(int(e["RANK"]) for e in made) == list(range(world))
    assert {e["WORLD_SIZE"] for e in made} == {str(world)}
    assert [e["RANK"] for e in made] == [e["PET_NODE_RANK"] for e in made]
    (address,) = {e["MASTER_ADDR"] for e in made}
    first = next(m for m, e in zip(plan.members, made, strict=True) if e["RANK"] == "0")
    assert address == f"job-{first.task}-{first.index}.job.default.svc"
    if any(task.name == "lead" for task in job.tasks):
        assert first.task == "lead"


def test_ranks_within_a_task_follow_the_index_so_neighbours_stay_neighbours() -> None:
    job = torch(task("worker", 3), task("master"))
    ranks = {
        (m.task, m.index): e["RANK"]
        for m, e in zip(a_plan(job).members, environments(job), strict=True)
    }
    assert ranks == {
        ("master", 0): "0",
        ("worker", 0): "1",
        ("worker", 1): "2",
        ("worker", 2): "3",
    }


def test_a_gang_admitted_smaller_counts_only_those_that_were_planned() -> None:
    job = torch(task("worker", 4, minReplicas=2), task("reader", role="worker", maxReplicas=2))
    plan = a_plan(job)
    small = replace(plan, members=plan.members[:2])
    assert {e["WORLD_SIZE"] for e in environments(job, small)} == {"2"}


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        ({}, "1"),
        ({"cpu": "64", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "1"),
        ({"hugepages-2Mi": "512Mi", "memory": "1Gi"}, "1"),
        ({GPU: "8"}, "8"),
        ({GPU: "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5Gi"}, "8"),
        ({"amd.com/gpu": "4", "rdma/hca": "8"}, "4"),
        ({"google.com/tpu": "4"}, "4"),
        ({"gpu.intel.com/i915": "2", "gpu.intel.com/memory.max": "8589934592"}, "2"),
        ({"nvidia.com/mig-1g.10gb": "2", "vpc.amazonaws.com/efa": "32"}, "2"),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "8000"}, "1"),
        ({"aliyun.com/gpu-mem": "16"}, "1"),
        ({"smarter-devices/fuse": "2"}, "1"),
        ({"rdma/hca_shared_devices_a": "63"}, "1"),
        ({"example.com/widget": "2", "rdma/hca": "1"}, "auto"),
    ],
)
def test_torchrun_starts_one_process_per_accelerator_and_finds_out_what_nobody_knows(
    resources: dict[str, str], processes: str
) -> None:
    spec = pod_spec(0)
    spec["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    (made,) = environments(torch(task(spec=spec)))
    assert made["PET_NPROC_PER_NODE"] == processes


def test_devices_of_claims_count_as_planned_and_torchrun_finds_out_those_that_are_not() -> None:
    claim = {"name": "gpus", "resourceClaimTemplateName": "eight"}
    job = torch(task(spec={**pod_spec(0), "resourceClaims": [claim]}))
    plan = a_plan(job)
    (made,) = environments(job, plan)
    assert made["PET_NPROC_PER_NODE"] == "auto"
    asked = (("deviceclass.resource.kubernetes.io/gpu.nvidia.com", 8), ("pods", 1))
    (made,) = environments(job, replace(plan, requests={"worker": asked}))
    assert made["PET_NPROC_PER_NODE"] == "8"


def test_an_administrator_says_what_else_is_an_accelerator() -> None:
    spec = pod_spec(0)
    spec["containers"][0]["resources"] = {"limits": {"example.com/widget": "3"}}
    job = torch(task(spec=spec))
    known = read_accelerators(("example.com/widget",))
    made = Rendezvous(job, a_plan(job), known).environment("worker", 0)
    assert made["PET_NPROC_PER_NODE"] == "3"
    assert made["PET_NNODES"] == "1"


def test_torch_tells_torchrun_the_same_meeting_point() -> None:
    (made,) = environments(torch(task()))
    assert made["MASTER_PORT"] == made["PET_MASTER_PORT"] == "29500"
    assert made["MASTER_ADDR"] == made["PET_MASTER_ADDR"]
    assert made["PET_RDZV_ID"] == "job-uid"


def configs(job: JobFacts) -> list[dict[str, Any]]:
    return [json.loads(e["TF_CONFIG"]) for e in environments(job)]


def test_tensorflow_gets_the_cluster_and_its_own_task() -> None:
    job = a_job(
        task("chief"), task("ps", 2), task("worker", 2), task("evaluator"), rendezvous="tensorflow"
    )
    found = configs(job)
    cluster = {
        "chief": ["job-chief-0.job.default.svc:2222"],
        "ps": [f"job-ps-{i}.job.default.svc:2222" for i in range(2)],
        "worker": [f"job-worker-{i}.job.default.svc:2222" for i in range(2)],
    }
    assert [c["cluster"] for c in found] == [cluster] * 6
    assert [(c["task"]["type"], c["task"]["index"]) for c in found] == [
        ("chief", 0),
        ("ps", 0),
        ("ps", 1),
        ("worker", 0),
        ("worker", 1),
        ("evaluator", 0),
    ]


def test_two_tensorflow_tasks_of_one_role_share_its_numbering() -> None:
    job = a_job(
        task("big", 2, role="worker", priority=9),
        task("small", 2, role="worker", priority=60),
        task("ps"),
        rendezvous="tensorflow",
    )
    found = configs(job)
    for config in found:
        own = config["task"]
        assert own["index"] < len(config["cluster"][own["type"]])
    addresses = found[0]["cluster"]["worker"]
    assert [a.split(".")[0] for a in addresses] == [
        "job-small-0",
        "job-small-1",
        "job-big-0",
        "job-big-1",
    ]
    ordered = [addresses[c["task"]["index"]] for c in found if c["task"]["type"] == "worker"]
    assert [t.split(".")[0] for t in ordered] == [
        "job-big-0",
        "job-big-1",
        "job-small-0",
        "job-small-1",
    ]


def test_a_job_without_rendezvous_gets_neither_variables_nor_a_service() -> None:
    job = a_job(task("worker", 2))
    assert list(environments(job)) == [{}, {}]
    assert not Rendezvous(job, a_plan(job)).needs_service


def test_the_service_is_headless_resolves_unready_replicas_and_dies_with_the_job() -> None:
    manifest = pod_builder.service_manifest(torch(task()))
    assert manifest["metadata"]["name"] == "job"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert manifest["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"bireme.dev/training-job": "job"},
    }


# --- elastic ----------------------------------------------------------------------------------


def elastic(**spec: Any) -> JobFacts:
    return a_job(
        task("master"),
        task("worker", 3, minReplicas=1, maxReplicas=6, gpus=2),
        rendezvous="torch",
        **spec,
    )


def test_an_elastic_gang_meets_at_its_first_replica_in_any_number_it_may_have() -> None:
    made = list(environments(elastic()))
    assert {e["PET_NNODES"] for e in made} == {"2:7"}
    assert {e["PET_RDZV_ENDPOINT"] for e in made} == {"job-master-0.job.default.svc:29500"}
    assert {e["PET_RDZV_BACKEND"] for e in made} == {"c10d"}
    assert [e["PET_RDZV_CONF"].split(",")[0] for e in made] == ["is_host=1", *["is_host=0"] * 3]
    assert [e["PET_NPROC_PER_NODE"] for e in made] == ["1", "2", "2", "2"]


def test_the_first_replica_of_an_elastic_gang_is_rank_zero_whatever_tasks_are_called() -> None:
    """As torchrun numbers agents: in the order of their addresses."""
    job = a_job(
        task("trainer", role="master"),
        task("helper", 12, role="worker", minReplicas=1),
        rendezvous="torch",
    )
    addresses = [e["PET_LOCAL_ADDR"] for e in environments(job)]
    assert min(addresses) == addresses[0]
    assert [address.lower() for address in addresses[:2]] == [
        "job-trainer-0.job.default.svc",
        "job-helper-0.job.default.svc",
    ]


def test_elastic_agents_have_met_again_long_before_the_next_resize_may_come() -> None:
    (conf,) = {e["PET_RDZV_CONF"].partition(",")[2] for e in environments(elastic())}
    settings = {name: int(value) for name, value in (part.split("=") for part in conf.split(","))}
    missed_seconds = settings["keep_alive_interval"] * settings["keep_alive_max_attempt"]
    stands_still_seconds = missed_seconds + settings["last_call_timeout"]
    assert 3 * stands_still_seconds < SchedulingSettings().resize_settle_seconds


def test_min_available_is_the_fewest_agents_of_an_elastic_gang() -> None:
    assert {e["PET_NNODES"] for e in environments(elastic(minAvailable=3))} == {"3:7"}


def test_an_elastic_replica_gets_no_variable_that_a_resize_would_make_wrong() -> None:
    job = elastic()
    plan = a_plan(job)
    small = replace(plan, members=plan.members[:2])
    assert list(environments(job, plan))[:2] == list(environments(job, small))
    variables = set(next(environments(job)))
    assert variables.isdisjoint({"RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NODE_RANK"})


def test_every_start_of_an_elastic_gang_meets_anew() -> None:
    job = elastic()
    first, second = (
        {e["PET_RDZV_ID"] for e in environments(job, a_plan(job, attempt=n))} for n in (0, 1)
    )
    assert (first, second) == ({"job-uid-0"}, {"job-uid-1"})
