"""The verbs of the API server, and its words where it refuses."""

import base64
from typing import Any

import pytest

from bireme_lab.embedded.api.reading import WatchStart
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"


def test_what_is_created_gets_identity_and_defaults() -> None:
    api = an_api()
    pod = done(api, "POST", PODS, a_pod())
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["namespace"], meta["generation"]) == ("default", 1)
    assert meta["uid"]
    assert meta["creationTimestamp"] == "2030-03-17T17:46:40Z"
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        (PODS, a_pod(), 409, 'pods "p" already exists'),
        ("/api/v1/namespaces/x/pods", a_pod("q"), 404, 'namespaces "x" not found'),
        (PODS, a_pod("Q"), 422, 'Pod "Q" is invalid: metadata.name: Invalid value: "Q": a low'),
        (PODS, a_pod("q", containers=[]), 422, "spec.containers: Required value"),
        (
            PODS,
            {**a_pod("q"), "metadata": {"name": "q", "resourceVersion": "4"}},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        ("/api/v1/pods", a_pod("q"), 400, "an empty namespace may not be set during creation"),
        (PODS, {**a_pod("q"), "spec": "x"}, 400, 'spec must be an object, not "x"'),
        (
            PODS,
            a_pod("q", containers=[{"name": 1, "ports": [{"containerPort": "x"}]}]),
            400,
            "spec.containers[0].name must be a string, not 1; spec.containers[0].ports[0].contain",
        ),
        ("/api/v1/namespaces/default/widgets", a_pod("q"), 404, "could not find the requested"),
    ],
)
def test_what_cannot_be_created_is_refused(path: str, body: object, code: int, words: str) -> None:
    api = an_api()
    done(api, "POST", PODS, a_pod())
    answer = ask(api, "POST", path, body)
    assert answer.code == code
    assert words in answer.body["message"]
    assert answer.body["status"] == "Failure"


def test_a_write_with_an_old_version_conflicts() -> None:
    api = an_api()
    first = done(api, "POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    done(api, "PUT", f"{MAPS}/m", {**first, "data": {"a": "2"}})
    answer = ask(api, "PUT", f"{MAPS}/m", {**first, "data": {"a": "3"}})
    assert answer.code == 409
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on configmaps "m": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )


def test_a_write_that_changes_nothing_makes_no_version() -> None:
    api = an_api()
    first = done(api, "POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    again = done(api, "PUT", f"{MAPS}/m", first)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_status_changes_only_by_its_own_path() -> None:
    api = an_api()
    pod = done(api, "POST", PODS, a_pod())
    status = {"phase": "Running"}
    by_main = done(api, "PUT", f"{PODS}/p", {**pod, "status": status})
    assert by_main["status"]["phase"] == "Pending"
    spec = {**pod["spec"], "containers": []}
    by_status = done(api, "PUT", f"{PODS}/p/status", {**pod, "spec": spec, "status": status})
    assert by_status["status"] == status
    assert by_status["spec"] == pod["spec"]
    assert by_status["metadata"]["generation"] == 1


def test_a_dry_run_answers_and_stores_nothing() -> None:
    api = an_api()
    assert done(api, "POST", PODS, a_pod(), dryRun="All")["metadata"]["uid"]
    assert ask(api, "GET", f"{PODS}/p").code == 404


def test_unknown_fields_are_refused_warned_of_or_dropped() -> None:
    api = an_api()
    body = a_pod("q", schedule="x")
    strict = ask(api, "POST", PODS, body, fieldValidation="Strict")
    assert strict.code == 400
    assert strict.body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
        '"spec.schedule"'
    )
    warned = ask(api, "POST", PODS, body, fieldValidation="Warn")
    assert warned.warnings == ['unknown field "spec.schedule"']
    assert "schedule" not in warned.body["spec"]


def test_finalizers_keep_a_deleted_object_until_they_are_gone() -> None:
    api = an_api()
    meta = {"name": "m", "finalizers": ["example.com/hold"]}
    done(api, "POST", MAPS, {"metadata": meta})
    left = done(api, "DELETE", f"{MAPS}/m")
    assert left["metadata"]["deletionTimestamp"]
    more = {**left, "metadata": {**left["metadata"], "finalizers": ["example.com/hold", "b/c"]}}
    assert done(api, "PUT", f"{MAPS}/m", more)["metadata"]["finalizers"] == ["example.com/hold"]
    current = done(api, "GET", f"{MAPS}/m")
    done(
        api, "PUT", f"{MAPS}/m", {**current, "metadata": {**current["metadata"], "finalizers": []}}
    )
    assert ask(api, "GET", f"{MAPS}/m").code == 404


def test_a_deletion_with_the_uid_of_another_object_conflicts() -> None:
    api = an_api()
    done(api, "POST", MAPS, {"metadata": {"name": "m"}})
    answer = ask(api, "DELETE", f"{MAPS}/m", {"preconditions": {"uid": "other"}})
    assert answer.code == 409
    words = "the UID in the precondition (other) does not match the UID in record"
    assert words in answer.body["message"]


def test_pages_are_cut_from_the_state_that_the_first_one_saw() -> None:
    api = an_api()
    for name in "abc":
        done(api, "POST", MAPS, {"metadata": {"name": name}})
    first = done(api, "GET", MAPS, limit="2")
    done(api, "DELETE", f"{MAPS}/c")
    following: dict[str, Any] = {"continue": first["metadata"]["continue"]}
    rest = done(api, "GET", MAPS, limit="2", **following)
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    following["continue"] = base64.urlsafe_b64encode(b"page-99").decode()
    assert ask(api, "GET", MAPS, **following).code == 410
    following["continue"] = "other"
    assert ask(api, "GET", MAPS, **following).code == 400


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", "a"),
        ("app!=x", "bc"),
        ("app", "ab"),
        ("!app", "c"),
        ("app in (x, y)", "ab"),
        ("app notin (x),tier", "b"),
    ],
)
def test_labels_select(selector: str, names: str) -> None:
    api = an_api()
    labels = {"a": {"app": "x"}, "b": {"app": "y", "tier": "1"}, "c": {}}
    for name, own in labels.items():
        done(api, "POST", MAPS, {"metadata": {"name": name, "labels": own}})
    found = done(api, "GET", MAPS, labelSelector=selector)
    assert "".join(each["metadata"]["name"] for each in found["items"]) == names


def test_a_field_that_is_not_selectable_is_refused() -> None:
    answer = ask(an_api(), "GET", PODS, fieldSelector="spec.image=x")
    assert (answer.code, answer.body["message"]) == (400, "field label not supported: spec.image")


def test_a_watch_begins_where_a_list_ended() -> None:
    api = an_api()
    done(api, "POST", MAPS, {"metadata": {"name": "a"}})
    version = done(api, "GET", MAPS)["metadata"]["resourceVersion"]
    done(api, "POST", MAPS, {"metadata": {"name": "b"}})
    start = api.answer(ApiRequest("GET", MAPS, {"watch": "1", "resourceVersion": version}))
    assert isinstance(start, WatchStart)
    assert [change.object["metadata"]["name"] for change in start.changes] == ["b"]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"watch": "1", "resourceVersion": "1"}, 410, "too old resource version: 1 (2)"),
        ({"watch": "1", "resourceVersion": "x"}, 400, "invalid resource version: resourceVersion"),
        ({"resourceVersion": "x"}, 400, "invalid resource version: resourceVersion: Invalid val"),
        ({"limit": "many"}, 400, 'strconv.ParseInt: parsing "many": invalid syntax'),
        ({"watch": "1", "timeoutSeconds": "1.5"}, 400, 'strconv.ParseInt: parsing "1.5": invalid'),
        ({"resourceVersionMatch": "Exact"}, 422, 'ListOptions.meta.k8s.io "" is invalid: resource'),
    ],
)
def test_reads_from_nowhere_are_refused(query: dict[str, str], code: int, words: str) -> None:
    api = an_api()
    api.store.collection("/api/v1/configmaps").oldest_version = 2
    answer = api.answer(ApiRequest("GET", MAPS, query))
    assert isinstance(answer, ApiAnswer)
    assert (answer.code, answer.body["message"][: len(words)]) == (code, words)


def test_a_table_has_the_cells_that_kubectl_prints() -> None:
    api = an_api()
    done(api, "POST", PODS, a_pod())
    table = done(api, "GET", PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:5] == ["p", "0/1", "Pending", "0", "0s"]
    events = "/api/v1/namespaces/default/events"
    table = done(api, "GET", events, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    shown = [each["name"] for each in table["columnDefinitions"] if not each["priority"]]
    assert shown == ["Last Seen", "Type", "Reason", "Object", "Message"]
