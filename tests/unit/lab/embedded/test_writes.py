"""Patches and server-side apply: what is merged, and who owns it."""

import json

import pytest

from bireme_lab.embedded.api import kinds, patches
from bireme_lab.embedded.api.apply import merge
from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.server import ApiServer
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

MAPS = "/api/v1/namespaces/default/configmaps"


def applied(api: ApiServer, manager: str, data: dict[str, str], *, force: str = "false") -> Object:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}
    answer = ask(
        api,
        "PATCH",
        f"{MAPS}/m",
        body,
        content_type="application/apply-patch+yaml",
        fieldManager=manager,
        force=force,
    )
    if answer.code >= 300:
        raise ApiRefusal(answer.code, answer.body["reason"], answer.body["message"])
    found: Object = answer.body
    return found


def test_apply_creates_merges_and_takes_away_what_its_manager_left_out() -> None:
    api = an_api()
    applied(api, "ann", {"a": "1", "b": "1"})
    applied(api, "bob", {"c": "1"})
    assert applied(api, "ann", {"a": "2"})["data"] == {"a": "2", "c": "1"}


def test_apply_is_refused_where_another_owns_what_changes_and_force_takes_it() -> None:
    api = an_api()
    applied(api, "ann", {"a": "1"})
    with pytest.raises(ApiRefusal, match=r'1 conflict: conflict with "ann": \.data\.a'):
        applied(api, "bob", {"a": "2"})
    applied(api, "bob", {"a": "2"}, force="true")
    with pytest.raises(ApiRefusal, match='conflict with "bob"'):
        applied(api, "ann", {"a": "3"})


def test_a_value_that_two_managers_apply_stays_until_both_leave_it_out() -> None:
    api = an_api()
    applied(api, "ann", {"a": "1", "x": "1"})
    applied(api, "bob", {"a": "1"})
    assert applied(api, "ann", {"x": "1"})["data"] == {"a": "1", "x": "1"}
    assert applied(api, "bob", {"y": "1"})["data"] == {"x": "1", "y": "1"}


def test_an_update_owns_what_it_changes() -> None:
    api = an_api()
    applied(api, "ann", {"a": "1"})
    merge = {"data": {"a": "2"}}
    done(api, "PATCH", f"{MAPS}/m", merge, content_type=patches.MERGE_PATCH, manager="kubectl-edit")
    with pytest.raises(ApiRefusal, match='conflict with "kubectl-edit" using v1'):
        applied(api, "ann", {"a": "1"})


def test_applying_the_same_again_makes_no_version() -> None:
    api = an_api()
    first = applied(api, "ann", {"a": "1"})
    again = applied(api, "ann", {"a": "1"})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_items_of_a_keyed_list_are_owned_one_by_one() -> None:
    api = an_api()
    done(api, "POST", PODS, a_pod(schedulingGates=[{"name": "a/b"}, {"name": "bireme.dev/plan"}]))
    found = done(api, "GET", f"{PODS}/p")
    fields = json.dumps(found["metadata"]["managedFields"][0]["fieldsV1"])
    assert r"k:{\"name\":\"bireme.dev/plan\"}" in fields


def test_strategic_patches_merge_lists_by_their_keys() -> None:
    target = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patch = {
        "spec": {
            "containers": [{"name": "b", "image": "2"}, {"name": "a", "$patch": "delete"}],
            "$retainKeys": ["containers"],
        }
    }
    merged = patches.merge_strategic(target, patch)
    assert merged == {"spec": {"containers": [{"name": "b", "image": "2"}]}}


def test_a_json_patch_whose_test_fails_is_refused() -> None:
    with pytest.raises(ApiRefusal) as refused:
        patches.patch_json({"a": 1}, [{"op": "test", "path": "/a", "value": 2}])
    assert refused.value.status == 422


def test_a_patch_of_an_unknown_form_is_refused() -> None:
    api = an_api()
    done(api, "POST", MAPS, {"metadata": {"name": "m"}})
    assert ask(api, "PATCH", f"{MAPS}/m", {}, content_type="text/plain").code == 415


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"color": "red"}, ".spec.color: field not declared in schema"),
        ({"containers": {}}, ".spec.containers: expected list, got &{{}}"),
        ({"priority": "high"}, ".spec.priority: expected numeric (int or float), got string"),
    ],
)
def test_an_applied_object_has_the_types_of_its_kind(spec: Object, words: str) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": spec}
    content_type = "application/apply-patch+yaml"
    answer = ask(
        an_api(), "PATCH", f"{PODS}/q", body, content_type=content_type, fieldManager="ann"
    )
    assert answer.code == 500
    assert answer.body["message"] == (
        f"failed to create typed patch object (/q; /v1, Kind=Pod): {words}"
    )


def test_a_replacement_adds_a_field_that_an_object_lacks() -> None:
    operations = [{"op": "replace", "path": "/spec/new", "value": 1}]
    assert patches.patch_json({"spec": {}}, operations) == {"spec": {"new": 1}}
    with pytest.raises(ApiRefusal, match="the server rejected our request"):
        patches.patch_json({"spec": {}}, [{"op": "replace", "path": "/a/b", "value": 1}])


def test_a_field_that_an_object_lacks_is_null_in_tests() -> None:
    missing = [{"op": "test", "path": "/metadata/annotations", "value": None}]
    assert patches.patch_json({"metadata": {}}, missing) == {"metadata": {}}
    with pytest.raises(ApiRefusal, match="the server rejected our request"):
        patches.patch_json({"metadata": {"annotations": {}}}, missing)


def test_apply_leaves_the_items_of_others_in_their_places() -> None:
    def pod(*names: str) -> Object:
        return a_pod(containers=[{"name": name, "image": "i"} for name in names])

    live, shape = pod("c", "b", "a", "d"), an_api().admission.shape(_kind_of(kinds.PODS))
    merged = merge(live, pod("e", "a", "f", "c"), shape)
    assert [each["name"] for each in merged["spec"]["containers"]] == ["b", "e", "a", "d", "f", "c"]


def test_fields_are_merged_as_the_types_of_their_kind_say() -> None:
    shape = an_api().admission.shape(_kind_of(kinds.SERVICES))
    ports = [{"port": 80, "name": "web"}, {"port": 81}]
    live = {"spec": {"ports": ports, "selector": {"a": "1"}}}
    applied = {"spec": {"ports": [{"port": 80, "targetPort": 8080}], "selector": {"b": "1"}}}
    assert merge(live, applied, shape) == {
        "spec": {
            "ports": [{"port": 80, "name": "web", "targetPort": 8080}, {"port": 81}],
            "selector": {"b": "1"},
        }
    }


def _kind_of(path: str) -> ResourceKind:
    return next(kind for kind in kinds.KINDS if kind.path == path)
