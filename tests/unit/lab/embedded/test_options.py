"""Options of requests, and metadata: the words of the real API server where they do not fit."""

from typing import Any

import pytest

from bireme_lab.embedded.api.server import ApiServer
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"
NAME_PART = "name part must consist of alphanumeric characters, '-', '_' or '.'"


@pytest.fixture
def api() -> ApiServer:
    api = an_api()
    done(api, "POST", PODS, a_pod())
    return api


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"dryRun": "Some"}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        ({"fieldManager": "a" * 129}, "fieldManager: Too long: may not be more than 128 bytes"),
        ({"fieldValidation": "Loose"}, 'fieldValidation: Unsupported value: "Loose": supported'),
    ],
)
def test_options_that_do_not_exist_are_refused(
    api: ApiServer, query: dict[str, Any], words: str
) -> None:
    answer = ask(api, "POST", PODS, a_pod("q"), **query)
    assert answer.code == 422
    assert f'CreateOptions.meta.k8s.io "" is invalid: {words}' in answer.body["message"]


def test_force_is_for_applied_objects_alone(api: ApiServer) -> None:
    answer = ask(api, "PATCH", f"{PODS}/p", {}, content_type=MERGE, force="true")
    assert answer.code == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in answer.body["message"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"propagationPolicy": "Sideways"}, 422, 'propagationPolicy: Unsupported value: "Sidewa'),
        ({"dryRun": ["Some"]}, 422, 'dryRun: Unsupported value: ["Some"]'),
        ({"gracePeriodSeconds": "soon"}, 400, "json: cannot unmarshal string into Go struct field"),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, 'no kind "Pod" is registered for version "v1"'),
    ],
)
def test_options_of_deletions_are_checked_before_the_object_is_found(
    api: ApiServer, options: dict[str, Any], code: int, words: str
) -> None:
    answer = ask(api, "DELETE", f"{PODS}/missing", options)
    assert answer.code == code
    assert words in answer.body["message"]


def test_a_body_of_a_deletion_replaces_the_options_of_the_query(api: ApiServer) -> None:
    done(api, "DELETE", f"{PODS}/p", dryRun="All")
    done(api, "GET", f"{PODS}/p")
    done(api, "DELETE", f"{PODS}/p", {}, dryRun="All")
    assert ask(api, "GET", f"{PODS}/p").code == 404


def test_pods_of_a_job_stay_by_default_and_a_warning_says_so(api: ApiServer) -> None:
    template = {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}
    done(api, "POST", JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}})
    answer = ask(api, "DELETE", f"{JOBS}/j", {})
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    assert answer.warnings[0].startswith("child pods are preserved by default")


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"labels": {"bad key": "a"}}, f'metadata.labels: Invalid value: "bad key": {NAME_PART}'),
        ({"annotations": {"a b": "c"}}, f'metadata.annotations: Invalid value: "a b": {NAME_PART}'),
        ({"finalizers": ["example.com/a b"]}, f'Invalid value: "example.com/a b": {NAME_PART}'),
        ({"finalizers": ["hold"]}, "name is neither a standard finalizer name nor is it fully"),
        (
            {"ownerReferences": [{"kind": "Job", "name": "a", "uid": "u"}]},
            "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
        ),
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "a" * 254}, "must be no more than 253 characters"),
    ],
)
def test_faults_of_metadata_are_refused(api: ApiServer, meta: dict[str, Any], words: str) -> None:
    answer = ask(api, "POST", PODS, {**a_pod(), "metadata": {"name": "q", **meta}})
    assert answer.code == 422
    assert words in answer.body["message"]


@pytest.mark.parametrize(
    ("meta", "code", "words"),
    [
        ({"name": "other"}, 400, "the name of the object (other) does not match the name on the"),
        ({"namespace": "other"}, 400, "the namespace of the provided object does not match the"),
        ({"uid": "5"}, 422, 'metadata.uid: Invalid value: "5": field is immutable'),
        ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, 422, "field is immutable"),
        ({"resourceVersion": "many"}, 500, 'strconv.ParseUint: parsing "many": invalid syntax'),
        ({"resourceVersion": "1"}, 409, "the object has been modified"),
    ],
)
def test_fixed_metadata_do_not_change(
    api: ApiServer, meta: dict[str, Any], code: int, words: str
) -> None:
    answer = ask(api, "PATCH", f"{PODS}/p", {"metadata": meta}, content_type=MERGE)
    assert answer.code == code
    assert words in answer.body["message"]


def test_unknown_fields_are_warned_of_unless_a_request_says_otherwise(api: ApiServer) -> None:
    pod = {**a_pod("q", color="red"), "metadata": {"name": "q", "size": "big"}}
    answer = ask(api, "POST", PODS, pod, dryRun="All")
    assert answer.warnings == ['unknown field "metadata.size"', 'unknown field "spec.color"']
    assert "size" not in answer.body["metadata"]
    assert ask(api, "POST", PODS, pod, dryRun="All", fieldValidation="Ignore").warnings == []
    assert ask(api, "POST", PODS, pod, fieldValidation="Strict").code == 400


def test_a_refusal_has_the_warnings_of_its_request(api: ApiServer) -> None:
    answer = ask(api, "POST", PODS, a_pod(color="red"))
    assert (answer.code, answer.warnings) == (409, ['unknown field "spec.color"'])
