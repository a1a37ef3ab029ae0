"""LimitRanges of the embedded cluster, in the words of kube-apiserver."""

from typing import Any

import pytest

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.server import ApiServer
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

RANGES = "/api/v1/namespaces/default/limitranges"


def an_api_with(*limits: Object) -> ApiServer:
    api = an_api()
    done(api, "POST", RANGES, {"metadata": {"name": "l"}, "spec": {"limits": list(limits)}})
    return api


def with_resources(**resources: Any) -> Object:
    return a_pod(containers=[{"name": "c", "image": "i", "resources": resources}])


def test_containers_get_the_amounts_that_they_lack() -> None:
    limit = {"type": "Container", "default": {"cpu": "1", "memory": "2Gi"}, "min": {"cpu": "100m"}}
    api = an_api_with({**limit, "defaultRequest": {"memory": "1Gi"}})
    pod = done(api, "POST", PODS, with_resources(requests={"cpu": "200m"}))
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "200m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2Gi"},
    }
    assert pod["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: memory request for container c; cpu, memory limit for"
            " container c"
        )
    }
    assert pod["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limit", "resources", "message"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}},
            {"limits": {"cpu": "1500m"}},
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        (
            {"type": "Container", "min": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            {},
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "400m"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
    ],
)
def test_pod_outside_the_limits_is_refused(
    limit: Object, resources: dict[str, Any], message: str
) -> None:
    answer = ask(an_api_with(limit), "POST", PODS, with_resources(**resources))
    assert answer.code == 403
    assert answer.body["message"] == f'pods "p" is forbidden: {message}'


def test_range_whose_amounts_contradict_each_other_is_refused() -> None:
    limit = {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}}
    body = {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}
    answer = ask(an_api(), "POST", RANGES, body)
    assert answer.code == 422
    text = 'spec.limits[0].default[cpu]: Invalid value: "1": default value 2 is greater than max'
    assert text in answer.body["message"]
