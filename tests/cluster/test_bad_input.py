"""Whatever a tenant writes: the object says what is wrong within 10 s, and other jobs go on.

Every test submits a good job beside the bad input and wants it running in the end.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack, install_api
from testbed.scenario.manifests import (
    PLAN_GATE,
    POD_GROUP_LABEL,
    Manifest,
    annotations,
    pod,
    pod_group,
    pod_spec,
    queue,
    task,
    torch_job,
    training_job,
)
from testbed.scenario.promises import history_of
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("badinput", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    operator = stack.operator()
    pid, start = operator.pid, len(operator.log_path.read_text())
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
    assert operator.running
    assert operator.pid == pid, "the operator was not started again"
    assert "Traceback" not in operator.log_path.read_text()[start:]


def with_container(rendezvous: str = "none", **fields: object) -> Manifest:
    spec = pod_spec()
    spec["containers"][0] |= fields
    return training_job("bad", task(spec=spec), rendezvous=rendezvous)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (task(replicas=0), "should be greater than or equal to 1"),
        (task(replicas=10**9), "should be less than or equal to 10000"),
        (task(replicas=2, minReplicas=3), "minReplicas 3 is above replicas 2: lower minReplicas"),
        (task("Worker!", role="worker"), "spec.tasks[0].name"),
    ],
)
def test_impossible_shape_is_refused_by_the_api_server_in_plain_words(
    stack: BiremeStack, bad: Manifest, words: str
) -> None:
    tenant = Tenant(stack.cluster, "default")
    assert words in tenant.refusal(training_job("bad", bad))
    assert tenant.find("TrainingJob", "bad") is None


REFUSED_TEMPLATES = {
    "a mount without a volume": (
        with_container(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        "TemplateInvalid",
        'volumeMounts[0].name: Not found: "data"',
    ),
    "environment as a map": (
        with_container("torch", env={"LR": "0.1"}),
        "TemplateInvalid",
        "env",
    ),
    "environment as strings": (
        with_container("torch", env=["LR=0.1"]),
        "TemplateInvalid",
        "env",
    ),
    "a number for an image": (with_container(image=5), "TemplateInvalid", "image"),
    "a restart policy that never ends": (
        training_job("bad", task(spec=pod_spec(restartPolicy="Always"))),
        "TemplateInvalid",
        "restartPolicy: Always never ends; use Never or OnFailure",
    ),
    "an affinity operator that does not exist": (
        training_job(
            "bad",
            task(
                spec=pod_spec(
                    affinity={
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "gpu", "operator": "Like"}]}
                                ]
                            }
                        }
                    }
                )
            ),
        ),
        "TemplateInvalid",
        "Like",
    ),
    "a quantity nobody has": (
        with_container(resources={"limits": {"nvidia.com/gpu": "1E30"}}),
        "SpecInvalid",
        "quantity '1E30' is above the largest amount, 9007199254740992; write a smaller one",
    ),
    "an unknown queue": (training_job("bad", queue="nowhere"), "QueueNotFound", "'nowhere'"),
    "a missing priority class": (
        training_job("bad", priorityClassName="nobody"),
        "PriorityClassNotFound",
        "'nobody'",
    ),
    "a megabyte of environment": (
        with_container(env=[{"name": f"V{n}", "value": "x" * 1000} for n in range(1000)]),
        "TooLarge",
        "bytes as JSON, more than the 262144 that one job may have",
    ),
}


@pytest.mark.parametrize("name", REFUSED_TEMPLATES)
def test_bad_job_says_what_is_wrong_and_a_good_one_runs(tenant: Tenant, name: str) -> None:
    bad, reason, words = REFUSED_TEMPLATES[name]
    tenant.create(bad, training_job("good"))
    status = tenant.await_reason("bad", reason)
    assert words in status["message"]
    assert tenant.pods("bad") == []
    tenant.await_phase("good", "Running")


@pytest.mark.parametrize("levels", [300, 950, 3000])
def test_template_nested_too_deeply_is_reported(tenant: Tenant, levels: int) -> None:
    # As text and with kubectl: Python's own coders give up at about a thousand.
    deep = '{"a":' * levels + "1" + "}" * levels
    text = json.dumps(with_container(deep="DEEP")).replace('"DEEP"', deep)
    tenant.cluster.kubectl(
        "create", "--validate=false", "-n", tenant.namespace, "-f", "-", input=text
    )
    tenant.create(training_job("good"))
    tenant.await_phase("good", "Running")
    printed = tenant.cluster.kubectl(
        *("wait", "btj/bad", "--for=jsonpath={.status.reason}=SpecInvalid", "--timeout=60s"),
        *("-n", tenant.namespace),
    )
    assert "condition met" in printed
    message = tenant.cluster.kubectl(
        *("get", "btj", "bad", "-n", tenant.namespace, "-o", "jsonpath={.status.message}")
    )
    assert message == "spec is nested more than 256 levels deep; flatten its template"


def test_control_characters_of_a_failed_pod_reach_no_terminal(
    stack: BiremeStack, tenant: Tenant
) -> None:
    evil = '\x1b[31mred\x1b[0m \u202eleft\u202c 模型 \x00\x07 {"event": "forged"}\n{"a": 1}'
    fake = annotations(duration="300ms", fail_attempts="0", fail_message=evil)
    job = training_job("bad", task(fake=fake), runPolicy={"backoffLimit": 0})
    tenant.create(job, training_job("good"))
    status = tenant.await_phase("bad", "Failed")
    assert status["reason"] == "BackoffLimitExceeded"
    assert "模型" in status["message"]
    texts = [status["message"], *(c["message"] for c in status["conditions"])]
    texts += [message for _, _, message in tenant.events("bad")]
    assert all(text.isprintable() for text in texts)
    lines = stack.operator().log_path.read_text().splitlines()
    assert all("\x1b" not in line for line in lines)
    tenant.await_phase("good", "Running")


def test_names_in_unicode_are_refused_or_escaped(tenant: Tenant) -> None:
    assert "Invalid value" in tenant.refusal(training_job("modèle"))
    tagged = training_job("tagged")
    tagged["metadata"]["annotations"] = {"note": "\x1b[2J模型\u202e"}
    tenant.create(tagged)
    tenant.await_phase("tagged", "Running")


def test_pod_of_a_planned_name_made_by_somebody_else_is_left_alone_and_named(
    tenant: Tenant,
) -> None:
    squatter = pod("victim-worker-0", gpus=0)
    squatter["metadata"]["labels"] = {
        "bireme.dev/pod-group": "victim",
        "bireme.dev/training-job": "victim",
        "bireme.dev/task": "worker",
        "bireme.dev/index": "0",
        "bireme.dev/plan": "1.0",
    }
    uid = tenant.create(squatter)["metadata"]["uid"]
    tenant.create(training_job("victim", task(replicas=2)), training_job("good"))
    status = tenant.await_reason("victim", "PodsRefused")
    assert "a pod 'victim-worker-0' exists that is not this job's" in status["message"]
    tenant.await_phase("good", "Running")
    assert tenant.get("Pod", "victim-worker-0")["metadata"]["uid"] == uid
    tenant.delete("Pod", "victim-worker-0", grace_seconds=0)
    assert tenant.await_phase("victim", "Running")["ready"] == "2/2"


def test_pod_of_a_planned_name_without_any_label_is_named(tenant: Tenant) -> None:
    uid = tenant.create(pod("taken-worker-1", gpus=0))["metadata"]["uid"]
    tenant.create(training_job("taken", task(replicas=2)), training_job("good"))
    status = tenant.await_reason("taken", "PodsRefused")
    assert "a pod 'taken-worker-1' exists that is not this job's" in status["message"]
    tenant.eventually(lambda: tenant.plan("taken"), lambda plan: plan is None)
    tenant.eventually(lambda: tenant.pods("taken"), lambda pods: pods == [])
    assert tenant.get("Pod", "taken-worker-1")["metadata"]["uid"] == uid
    tenant.await_phase("good", "Running")


def test_job_of_the_name_of_a_pod_group_waits_until_that_is_gone(tenant: Tenant) -> None:
    tenant.create(pod_group("mine", 1), training_job("mine"), training_job("good"))
    status = tenant.await_reason("mine", "SpecInvalid")
    assert "a PodGroup 'mine' exists that is not this job's" in status["message"]
    tenant.await_phase("good", "Running")
    tenant.delete("PodGroup", "mine")
    tenant.await_phase("mine", "Running")


def test_pod_group_of_the_name_of_a_running_job_is_told_to_be_renamed(tenant: Tenant) -> None:
    tenant.create(training_job("mine", task(replicas=2)))
    tenant.await_phase("mine", "Running")
    before = uids_of(tenant.pods("mine"))
    member = pod("late", schedulerName="bireme", schedulingGates=[{"name": PLAN_GATE}])
    member["metadata"]["labels"] = {POD_GROUP_LABEL: "mine"}
    tenant.create(pod_group("mine", 1), member)
    tenant.eventually(
        lambda: tenant.status("mine", "PodGroup"),
        lambda status: "a TrainingJob 'mine' runs here" in status.get("message", ""),
    )
    assert tenant.get("PodGroup", "mine")["status"]["reason"] == "SpecInvalid"
    assert "plan" not in tenant.status("mine", "PodGroup")
    assert tenant.status("mine")["phase"] == "Running"
    assert before.items() <= uids_of(tenant.pods("mine")).items()
    assert "nodeName" not in tenant.get("Pod", "late")["spec"]


def test_crds_removed_while_jobs_run_are_survived(stack: BiremeStack, tenant: Tenant) -> None:
    tenant.create(torch_job("lost"))
    tenant.await_phase("lost", "Running")
    if history := history_of(tenant.cluster):
        history.forgive(tenant.namespace)
    crds = Path(__file__).parents[2] / "charts" / "bireme" / "files" / "crds"
    tenant.cluster.kubectl("delete", "-f", str(crds), "--timeout=60s")
    tenant.eventually(tenant.pods, lambda pods: pods == [])
    install_api(tenant.cluster)
    tenant.create(queue("default"))
    tenant.create(torch_job("again"))
    tenant.await_phase("again", "Running")
    assert stack.operator().running
