"""Scripts are drawn by their seed alone, and answers are compared without what servers make."""

from typing import Any

from testbed.parity.answers import PlainAnswer, comparable
from testbed.parity.comparison import compare_answers
from testbed.parity.played_cluster import merge
from testbed.parity.scripts.drawing import draw
from testbed.parity.scripts.edits import DROP, Edit
from testbed.parity.states import is_moving, state_of


def test_a_seed_draws_the_same_script_again_and_no_other_seed_does() -> None:
    assert draw(7) == draw(7)
    assert draw(7).steps != draw(8).steps


def test_scripts_have_steps_of_every_method_and_kind() -> None:
    steps = [step for seed in range(60) for step in draw(seed).steps]
    assert {step.method for step in steps} == {"GET", "POST", "PUT", "PATCH", "DELETE"}
    for plural in ("trainingjobs", "podgroups", "pods", "jobs", "queues", "priorityclasses"):
        assert any(f"/{plural}" in step.path for step in steps)


def test_an_edit_sets_or_removes_one_value() -> None:
    manifest = {"spec": {"tasks": [{"name": "a", "replicas": 1}]}}
    assert Edit("spec/tasks/0/replicas", 2).apply(manifest)["spec"]["tasks"][0]["replicas"] == 2
    assert Edit("spec/tasks/0/name", DROP).apply(manifest)["spec"]["tasks"] == [{"replicas": 1}]
    assert Edit("metadata/labels", {}).apply(manifest)["metadata"] == {"labels": {}}
    assert manifest == {"spec": {"tasks": [{"name": "a", "replicas": 1}]}}


def refusal(message: str, status: int = 409) -> PlainAnswer:
    body = {"kind": "Status", "status": "Failure", "reason": "Conflict", "message": message}
    return PlainAnswer.parse(status, body, [])


def test_uids_times_and_versions_are_no_differences() -> None:
    uid = "0000000{}-0000-0000-0000-000000000000"
    words = "UID {} at 2030-01-0{}T00:00:00Z, resourceVersion: {}"
    answers = [refusal(words.format(uid.format(n), n, n)) for n in (1, 2)]
    assert compare_answers(*answers) == []
    assert [each.place for each in compare_answers(refusal("a", 400), refusal("b"))] == [
        "status",
        "message",
    ]


def test_an_object_is_compared_by_what_users_wrote_and_servers_filled_in() -> None:
    meta = {"name": "a", "uid": "1", "resourceVersion": "5", "labels": {"controller-uid": "1"}}
    token = {"name": "kube-api-access-abcde", "projected": {}}
    pod = {"kind": "Pod", "metadata": meta, "spec": {"volumes": [token]}, "status": {}}
    assert comparable(pod) == {"kind": "Pod", "metadata": {"name": "a", "labels": {}}, "spec": {}}


def test_a_replacement_has_the_stored_object_with_its_change() -> None:
    stored = {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"d": 1}}
    assert merge(stored, {"metadata": {"labels": {"b": None}}}) == {
        "metadata": {"name": "a", "labels": {"b": None}},
        "spec": {"d": 1},
    }


def test_the_state_of_a_namespace_counts_pods_by_gang() -> None:
    def a_pod(name: str, phase: str, **meta: Any) -> dict[str, Any]:
        labels = {"bireme.dev/pod-group": "gang"}
        head = {"name": name, "namespace": "n", "labels": labels, **meta}
        return {"metadata": head, "spec": {"nodeName": "x"}, "status": {"phase": phase}}

    pods = [a_pod("a", "Running"), a_pod("b", "Running"), a_pod("c", "Pending")]

    def objects(kind: str) -> list[dict[str, Any]]:
        return pods if kind == "Pod" else []

    counts = {"Pending bound": 1, "Running bound": 2}
    assert state_of(objects, "n") == {"pods of gang": counts}
    assert state_of(objects, "other") == {}
    assert not is_moving(objects, "n")
    pods.append(a_pod("d", "Running", deletionTimestamp="2030-01-01T00:00:00Z"))
    assert is_moving(objects, "n")
