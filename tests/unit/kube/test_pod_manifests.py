"""The pods of a planned job: what a tenant chose is kept, what is not theirs is set."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bireme.kube import names, wire
from bireme.kube.plans import PlanFacts
from bireme.kube.pod_builder import PodFactory, ProgressAccess
from bireme.kube.training_jobs import JobFacts
from testbed.objects.facts import a_job, a_plan
from testbed.scenario.manifests import pod_spec, task

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def made(job: JobFacts, plan: PlanFacts | None = None) -> list[dict[str, Any]]:
    """The pods of ``job``; each must be readable as one."""
    plan = plan or a_plan(job, ("n0", "n1"))
    factory = PodFactory(
        job, plan, label_of=lambda node, key: f"{key.rpartition('/')[2]}-of-{node}"
    )
    manifests = [factory.manifest(member) for member in plan.members]
    for manifest in manifests:
        msgspec.json.decode(msgspec.json.encode(manifest), type=wire.V1Pod)
    return manifests


def templated(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A task whose template holds these fields."""
    given = task(spec=pod_spec(1, **spec))
    if metadata is not None:
        given["template"]["metadata"] = metadata
    return given


def test_a_pod_carries_its_identity_in_labels_and_its_owner() -> None:
    job = a_job(task("worker", 2))
    pod = made(job, replace(a_plan(job, ("n0",), epoch=3, attempt=2), queue="research"))[1]
    assert pod["metadata"] == {
        "name": "job-worker-1",
        "namespace": "default",
        "labels": {
            names.JOB_LABEL: "job",
            names.POD_GROUP_LABEL: "job",
            names.TASK_LABEL: "worker",
            names.ROLE_LABEL: "worker",
            names.INDEX_LABEL: "1",
            names.ATTEMPT_LABEL: "2",
            names.PLAN_LABEL: "3.2",
            names.QUEUE_LABEL: "research",
        },
        "annotations": names.KEPT_IN_PLACE,
        "ownerReferences": [
            {
                "apiVersion": "bireme.dev/v1alpha1",
                "kind": "TrainingJob",
                "name": "job",
                "uid": "job-uid",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def test_labels_and_annotations_of_a_tenant_are_kept_but_never_over_ours() -> None:
    metadata = {
        "labels": {"team": "a", names.POD_GROUP_LABEL: "stolen", names.PLAN_LABEL: "9.9"},
        "annotations": {"note": "x", "karpenter.sh/do-not-disrupt": "false"},
    }
    (pod,) = made(a_job(templated(metadata)))
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"][names.POD_GROUP_LABEL] == "job"
    assert pod["metadata"]["labels"][names.PLAN_LABEL] == "1.0"
    assert pod["metadata"]["annotations"] == {
        "note": "x",
        "karpenter.sh/do-not-disrupt": "false",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }


def test_what_a_tenant_may_not_choose_is_set_or_taken_away() -> None:
    (pod,) = made(
        a_job(
            templated(
                schedulerName="default-scheduler",
                nodeName="theirs",
                priority=2_000_000_000,
                priorityClassName="system-node-critical",
                schedulingGates=[{"name": "example.com/mine"}],
            ),
            priorityClassName="batch",
        )
    )
    assert pod["spec"]["schedulerName"] == "bireme"
    assert pod["spec"]["priorityClassName"] == "batch"
    assert not pod["spec"].keys() & {"nodeName", "priority", "schedulingGates"}


def test_a_job_without_a_class_has_pods_without_one_whatever_the_template_says() -> None:
    (pod,) = made(a_job(templated(priorityClassName="system-node-critical")))
    assert "priorityClassName" not in pod["spec"]


def test_defaults_are_the_safer_ones_and_give_way_to_the_template() -> None:
    (pod,) = made(a_job(task()))
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["automountServiceAccountToken"] is False
    (pod,) = made(a_job(templated(restartPolicy="OnFailure", automountServiceAccountToken=True)))
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert pod["spec"]["automountServiceAccountToken"] is True


def test_fields_nobody_here_knows_are_carried_through() -> None:
    (pod,) = made(a_job(templated(futureField={"a": [1]}, hostname="mine")))
    assert pod["spec"]["futureField"] == {"a": [1]}
    assert pod["spec"]["hostname"] == "mine"


def test_every_pod_is_pinned_to_its_own_node_within_the_tenants_own_terms() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ssd = {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [zone, ssd]}},
        "podAffinity": {"kept": True},
    }
    given = task("worker", 2, spec=pod_spec(1, affinity=affinity))
    for pod, node in zip(made(a_job(given)), ("n0", "n1"), strict=True):
        pin = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        found = pod["spec"]["affinity"]
        assert found["podAffinity"] == {"kept": True}
        assert found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
            {**zone, "matchFields": pin},
            {**ssd, "matchFields": pin},
        ]


def test_a_pinned_pod_has_hard_spread_without_what_only_its_plan_can_keep() -> None:
    hard = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    given = [
        hard | {"minDomains": 2, "nodeTaintsPolicy": "Honor"},
        hard | {"topologyKey": "zone", "nodeAffinityPolicy": "Ignore"},
        hard | {"topologyKey": "host"},
        hard | {"whenUnsatisfiable": "ScheduleAnyway", "nodeAffinityPolicy": "Ignore"},
    ]
    job = a_job(templated(topologySpreadConstraints=given))
    (pinned,) = made(job)
    assert pinned["spec"]["topologySpreadConstraints"] == [
        hard | {"nodeTaintsPolicy": "Honor"},
        hard | {"topologyKey": "zone", "nodeAffinityPolicy": "Honor"},
        *given[2:],
    ]
    (scored,) = made(job, replace(a_plan(job, ("n0",)), mode="Score"))
    assert scored["spec"]["topologySpreadConstraints"] == given


def test_pods_of_a_scored_plan_carry_no_pin() -> None:
    job = a_job(task())
    (pod,) = made(job, a_plan(job, mode="Score"))
    assert "affinity" not in pod["spec"]


def test_rendezvous_variables_join_those_of_the_tenant_who_wins() -> None:
    spec = pod_spec(1)
    own = [{"name": "RANK", "value": "mine"}, {"name": "DATA", "value": "/d"}]
    spec["containers"] = [
        {**spec["containers"][0], "env": own},
        {"name": "sidecar", "image": "any"},
    ]
    (pod,) = made(a_job(task(spec=spec), rendezvous="torch"))
    first, second = ({v["name"]: v["value"] for v in c["env"]} for c in pod["spec"]["containers"])
    assert (first["RANK"], first["DATA"], first["WORLD_SIZE"]) == ("mine", "/d", "1")
    assert second["RANK"] == "0"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("job-worker-0", "job")


@pytest.mark.parametrize("rubbish", ["RANK=1", [1, 2], {"RANK": "1"}, [["RANK", "1"]]])
def test_an_environment_that_is_none_is_left_for_the_api_server_to_refuse(rubbish: Any) -> None:
    spec = pod_spec(1)
    spec["containers"][0]["env"] = rubbish
    (pod,) = made(a_job(task(spec=spec), rendezvous="torch"))
    assert pod["spec"]["containers"][0]["env"] == rubbish


@pytest.mark.parametrize("kind", ["torch", "tensorflow"])
def test_replicas_on_the_network_of_their_node_ask_the_resolver_that_knows_their_names(
    kind: str,
) -> None:
    def policy(rendezvous: str, **spec: Any) -> str | None:
        job = a_job(templated(**spec), rendezvous=rendezvous)
        policy_name: str | None = made(job)[0]["spec"].get("dnsPolicy")
        return policy_name

    assert policy(kind, hostNetwork=True) == "ClusterFirstWithHostNet"
    assert policy(kind, hostNetwork=True, dnsPolicy="None") == "None"
    assert policy(kind, hostNetwork=True, dnsPolicy="ClusterFirst") == "ClusterFirst"
    assert policy(kind, hostNetwork=False) is None
    assert policy("none", hostNetwork=True) is None


def test_reports_find_the_endpoint_from_the_network_of_the_node_too() -> None:
    job = a_job(templated(hostNetwork=True))
    plan = a_plan(job, ("n0",))
    for url, expected in (
        ("https://bireme-progress.bireme-system.svc:8082", "ClusterFirstWithHostNet"),
        ("https://progress.example.com", None),
    ):
        factory = PodFactory(job, plan, ProgressAccess(url))
        assert factory.manifest(plan.members[0])["spec"].get("dnsPolicy") == expected


def test_a_job_without_rendezvous_leaves_containers_as_they_are() -> None:
    job = a_job(task())
    (pod,) = made(job)
    assert pod["spec"]["containers"] == msgspec.json.decode(job.templates[0])["spec"]["containers"]
    assert "subdomain" not in pod["spec"]


def test_making_pods_never_changes_the_template() -> None:
    job = a_job(templated({"labels": {"a": "b"}}, affinity={"podAffinity": {}}), rendezvous="torch")
    before = deepcopy(job.templates)
    made(job)
    assert job.templates == before


def test_members_come_in_intra_job_order() -> None:
    job = a_job(
        task("worker", 2),
        task("late", role="evaluator"),
        task("ps", 2),
        task("chief"),
    )
    plan = a_plan(job)
    ordered = [(m.task, m.index) for m in PodFactory(job, plan).in_order()]
    assert ordered == [
        ("chief", 0),
        ("ps", 0),
        ("ps", 1),
        ("worker", 0),
        ("worker", 1),
        ("late", 0),
    ]


def test_roles_without_pins_are_kept_together_where_that_is_required() -> None:
    own = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {REQUIRED: [own]}}
    worker = task("worker", 2, spec=pod_spec(1, affinity=affinity))
    wish = {"mode": "Required", "topologyKey": "topology.bireme.dev/rack"}
    job = a_job(task("ps", gpus=0), worker, roleAffinity=wish)
    plan = a_plan(job, ("n0", "n1"), mode="Score")
    labels = {names.JOB_LABEL: "job", names.ROLE_LABEL: "ps", names.PLAN_LABEL: plan.label}
    near = {"labelSelector": {"matchLabels": labels}, "topologyKey": "topology.bireme.dev/rack"}
    server, *workers = made(job, plan)
    # The plan has room for the workers in this rack; another one may have it for the server alone.
    rack = {"key": "topology.bireme.dev/rack", "operator": "In", "values": ["rack-of-n0"]}
    assert server["spec"]["affinity"] == {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}
    }
    assert [pod["spec"]["affinity"] for pod in workers] == [
        {"podAffinity": {REQUIRED: [own, near]}}
    ] * 2
    # A dry run asks what the API server makes of the template.
    alone = replace(plan, members=plan.members[1:2])
    assert [pod["spec"]["affinity"] for pod in made(job, alone)] == [affinity]
    preferred = a_job(task("ps", gpus=0), worker, roleAffinity={**wish, "mode": "Preferred"})
    assert [pod["spec"].get("affinity") for pod in made(preferred, plan)] == [None, *[affinity] * 2]
