"""The means of pods to report progress: an address and a token for it, unless they want none."""

from typing import Any

import pytest

from bireme.kube.pod_builder import ANNOTATION, AUDIENCE, PodFactory, ProgressAccess
from testbed.objects.facts import a_job, a_plan
from testbed.scenario.manifests import Manifest, pod_spec, task

ACCESS = ProgressAccess("https://bireme-progress.system:8082/", "bireme-ca")
URL = (
    "https://bireme-progress.system:8082/apis/bireme.dev/v1alpha1/namespaces/default"
    "/trainingjobs/job/progress"
)


def made(given: Manifest, access: ProgressAccess | None = ACCESS) -> dict[str, Any]:
    """The spec of the first pod of a job with the task ``given``."""
    job = a_job(given)
    plan = a_plan(job)
    spec: dict[str, Any] = PodFactory(job, plan, access).manifest(plan.members[0])["spec"]
    return spec


def environment(spec: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v["value"] for v in spec["containers"][0].get("env", ())}


def test_every_container_gets_the_address_and_the_token() -> None:
    spec = made(task())
    assert environment(spec) == {
        "BIREME_PROGRESS_URL": URL,
        "BIREME_PROGRESS_TOKEN_FILE": "/var/run/secrets/bireme.dev/progress/token",
        "BIREME_PROGRESS_CA_FILE": "/var/run/secrets/bireme.dev/progress/ca.crt",
        "KUBEFLOW_TRAINER_SERVER_URL": URL,
        "KUBEFLOW_TRAINER_SERVER_TOKEN": "/var/run/secrets/bireme.dev/progress/token",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": "/var/run/secrets/bireme.dev/progress/ca.crt",
    }
    (volume,) = spec["volumes"]
    token, authority = volume["projected"]["sources"]
    wanted = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    assert token == {"serviceAccountToken": wanted}
    assert authority["configMap"]["name"] == "bireme-ca"
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)


def test_without_an_authority_of_its_own_none_is_configured() -> None:
    spec = made(task(), ProgressAccess("http://10.0.0.1:8082"))
    assert not any("CA" in name for name in environment(spec))
    assert len(spec["volumes"][0]["projected"]["sources"]) == 1


def test_without_an_endpoint_pods_are_as_before() -> None:
    assert "volumes" not in made(task(), None)
    assert environment(made(task(), None)) == {}


def test_template_that_wants_none_gets_none() -> None:
    given = task()
    given["template"]["metadata"] = {"annotations": {ANNOTATION: "none"}}
    assert made(given) == made(given, None)


def test_own_volumes_mounts_and_variables_stay() -> None:
    given = task(spec=pod_spec(1, volumes=[{"name": "data", "emptyDir": {}}]))
    container = given["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    container["env"] = [{"name": "BIREME_PROGRESS_URL", "value": "http://mine"}]
    spec = made(given)
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "bireme-progress"]
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "data"
    assert environment(spec)["BIREME_PROGRESS_URL"] == "http://mine"


@pytest.mark.parametrize("mounts", ["data", {"name": "data"}])
def test_mounts_that_are_no_list_are_left_to_the_api_server(mounts: Any) -> None:
    given = task(spec=pod_spec(1))
    given["template"]["spec"]["containers"][0]["volumeMounts"] = mounts
    assert made(given)["containers"][0]["volumeMounts"] == mounts
