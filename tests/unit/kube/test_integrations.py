"""Kinds of workload of other controllers: their registry, the chart's rights, and their facts."""

import ast
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bireme.kube import integrations, wire
from bireme.kube.integrations import INTEGRATIONS, integration_of
from bireme.kube.integrations.integration import Integration
from bireme.kube.integrations.job import JOB
from bireme.kube.integrations.jobset import JOB_SET
from bireme.kube.integrations.pod import POD
from bireme.kube.pod_creation import remedy_of
from testbed.objects.facts import gated_pod, through_the_wire

ROOT: Final = Path(__file__).parents[3]
CHART: Final = ROOT / "charts" / "bireme"
GOLDEN: Final = ROOT / "tests" / "golden" / "chart" / "default.yaml"
SUSPENDABLE: Final = {(i.api_group, i.plural) for i in INTEGRATIONS if i.suspend_field}
RIGHTS: Final = {"get", "list", "patch"}


# --- the registry and the chart -----------------------------------------------------------------


def test_every_file_has_one_integration_and_that_is_registered() -> None:
    folder = Path(integrations.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "integration"}
    defined = [
        value
        for name in sorted(names)
        for value in vars(getattr(integrations, name)).values()
        if isinstance(value, Integration)
    ]
    assert len(defined) == len(names)
    assert {id(each) for each in defined} == {id(each) for each in INTEGRATIONS}
    assert len({(each.api_version, each.kind) for each in INTEGRATIONS}) == len(INTEGRATIONS)
    assert all(integration_of(each.api_version, each.kind) is each for each in INTEGRATIONS)
    assert integration_of("batch.volcano.sh/v1alpha1", "Job") is None


def test_the_chart_has_an_entry_for_every_kind_that_is_suspended() -> None:
    entries = yaml.safe_load((CHART / "files" / "workloads.yaml").read_text())
    assert {(each["apiGroup"], each["resource"]) for each in entries} == SUSPENDABLE
    assert len(entries) == len(SUSPENDABLE)


def test_the_operator_has_the_rights_and_its_fence_the_rules_for_them() -> None:
    manifests = [each for each in yaml.safe_load_all(GOLDEN.read_text()) if each]
    named = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    rights = {
        (group, resource): set(rule["verbs"])
        for rule in named["ClusterRole", "bireme-operator"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {kind: rights.get(kind) for kind in SUSPENDABLE} == dict.fromkeys(SUSPENDABLE, RIGHTS)
    fence = named["ValidatingAdmissionPolicy", "bireme-operator-others"]["spec"]
    fenced = {
        (group, resource)
        for rule in fence["matchConstraints"]["resourceRules"]
        if rule["operations"] == ["UPDATE"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert fenced == SUSPENDABLE
    fields = {i.suspend_field for i in INTEGRATIONS if i.suspend_field}
    assert fields == {("spec", "suspend")}, "the fence lets the operator change no other field"


def test_no_other_module_of_the_operator_or_the_library_s_edge_names_a_kind() -> None:
    words = {word for i in INTEGRATIONS if i.api_group for word in (i.kind, i.api_version)}
    folders = (ROOT / "operator", ROOT / "policies" / "bireme" / "kube")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if path.parent.name != "integrations"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in words
    ]
    assert found == []


# --- paths, patches and reading -----------------------------------------------------------------


def test_paths_are_those_of_the_api() -> None:
    assert JOB.collection_path() == "/apis/batch/v1/jobs"
    assert JOB.path(("team", "a")) == "/apis/batch/v1/namespaces/team/jobs/a"
    assert POD.collection_path("team") == "/api/v1/namespaces/team/pods"


def test_a_patch_sets_the_field_that_suspends_however_deep_it_lies() -> None:
    assert JOB.suspend_patch(True) == {"spec": {"suspend": True}}
    deep = Integration(
        api_version="a/v1",
        kind="A",
        plural="as",
        suspend_field=("spec", "runPolicy", "suspend"),
    )
    assert deep.suspend_patch(False) == {"spec": {"runPolicy": {"suspend": False}}}


def template(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {"containers": []}}


@pytest.mark.parametrize("end", ["Suspended", "Complete", "Failed"])
def test_a_job_is_read(end: str) -> None:
    job = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"suspend": True, "managedBy": "x/y", "template": template(team="a")},
        "status": {"succeeded": 3, "conditions": [{"type": end, "status": "True"}]},
    }
    workload = JOB.read(json.dumps(job).encode())
    assert (workload.meta.uid, workload.is_suspended, workload.managed_by) == ("u", True, "x/y")
    assert workload.template_labels == ({"team": "a"},)
    assert (workload.has_acted, workload.succeeded) == (True, 3)
    bare = JOB.read(b'{"metadata": {}, "spec": {"template": {}}, "status": {}}')
    assert (bare.is_suspended, bare.managed_by, bare.has_acted) == (False, None, False)
    assert (bare.template_labels, bare.succeeded) == (({},), 0)


@pytest.mark.parametrize("end", ["Suspended", "Completed", "Failed"])
def test_a_job_set_has_the_templates_of_all_its_jobs(end: str) -> None:
    jobs = [{"template": {"spec": {"template": template(job=name)}}} for name in "ab"]
    job_set = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"replicatedJobs": jobs},
        "status": {"conditions": [{"type": end, "status": "True"}]},
    }
    workload = JOB_SET.read(json.dumps(job_set).encode())
    assert workload.template_labels == ({"job": "a"}, {"job": "b"})
    assert (workload.is_suspended, workload.has_acted) == (False, True)


# --- pods that are created one after the other --------------------------------------------------


def pod_of(kind: str = "", name: str = "p", **labels: str) -> wire.V1Pod:
    made = gated_pod(name)
    made["metadata"]["labels"] = labels
    if kind:
        made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "train", "uid": "u"}]
    return through_the_wire(made, wire.V1Pod)


@pytest.mark.parametrize(
    ("pod", "remedy"),
    [
        (pod_of("StatefulSet"), "StatefulSet train creates each pod only once the last is ready"),
        (pod_of("MPIJob"), "launcherCreationPolicy: WaitForWorkersReady; give it AtStartup"),
        (pod_of("Job", **{"jobset.sigs.k8s.io/jobset-name": "set"}), "JobSet set creates one Job"),
        (
            pod_of("StatefulSet", **{"leaderworkerset.sigs.k8s.io/name": "lws"}),
            "startupPolicy: LeaderReady; give it startupPolicy: LeaderCreated",
        ),
    ],
)
def test_a_remedy_is_that_of_the_outermost_controller(pod: wire.V1Pod, remedy: str) -> None:
    assert remedy in remedy_of([pod])
    assert remedy_of([pod]).count("creates") == 1
    assert remedy_of([pod, pod]) == remedy_of([pod])


@pytest.mark.parametrize("kind", ["", "Job", "ReplicaSet"])
def test_a_controller_that_creates_all_pods_at_once_has_no_remedy(kind: str) -> None:
    assert remedy_of([pod_of(kind)]) == ""
