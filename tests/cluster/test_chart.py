"""The chart: what it renders, refuses and is allowed, by Helm and by the real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.scenario import renderings
from testbed.scenario.helm import CHART, Helm, pods_of
from testbed.scenario.manifests import queue
from testbed.scenario.renderings import WITHOUT_CRDS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture
def release(cluster: Cluster, namespace: str, helm: Helm) -> Iterator[str]:
    """The chart installed into a namespace of the session's cluster; the release's name."""
    where = f"--namespace={namespace}"
    flags = (WITHOUT_CRDS, "--set=defaultQueue.create=false,learnedShadow.create=false")
    done = helm("install", namespace, str(CHART), *flags, where, cluster=cluster)
    assert done.returncode == 0, done.stderr
    yield namespace
    helm("uninstall", namespace, where, cluster=cluster)


def test_chart_passes_the_linter(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_chart_renders_what_was_reviewed(helm: Helm) -> None:
    for path, text in renderings.render(helm).items():
        assert text == path.read_text(), renderings.__doc__


def test_every_crd_is_in_the_chart_and_is_kept_when_the_release_goes(helm: Helm) -> None:
    crds = [m for m in yaml.safe_load_all(helm.template()) if m["kind"].startswith("CustomRes")]
    assert len(crds) == len(list((CHART / "files" / "crds").iterdir()))
    assert {m["metadata"]["annotations"]["helm.sh/resource-policy"] for m in crds} == {"keep"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("forecast.schedul=x", "at '/forecast': additional properties 'schedul' not allowed"),
        ("forcast.enabled=true", "additional properties 'forcast' not allowed"),
        ("forecast.enabled=maybe", "at '/forecast/enabled': got string, want boolean"),
        ("forecast.schedule=tomorrow", "at '/forecast/schedule'"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
        ("networkPolicies.egress.dns.ports={0}", "at '/networkPolicies/egress/dns/ports/0'"),
    ],
)
def test_value_that_the_chart_does_not_know_is_refused_by_its_place(
    helm: Helm, value: str, message: str
) -> None:
    done = helm("template", "bireme", str(CHART), "--set", value)
    assert done.returncode != 0
    assert message in done.stderr


def test_every_value_has_a_place_in_the_schema() -> None:
    """Otherwise a new value could not be set: the schema refuses what it does not list."""

    def check(values: Any, schema: Manifest, path: str) -> None:
        if isinstance(values, dict) and "properties" in schema:
            assert set(values) <= set(schema["properties"]), path
            for name, value in values.items():
                check(value, schema["properties"][name], f"{path}.{name}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


def test_the_schema_names_what_could_be_meant() -> None:
    """Helm names the place of an unknown value; ``propertyNames`` lists those that are known."""

    def check(schema: Any) -> None:
        if isinstance(schema, dict):
            if "properties" in schema:
                assert schema["additionalProperties"] is False
                assert schema["propertyNames"] == {"enum": list(schema["properties"])}
            for part in schema.values():
                check(part)

    whole = json.loads((CHART / "values.schema.json").read_text())
    others = whole["properties"].pop("global")  # other charts read of it, too
    assert "additionalProperties" not in others
    check(whole["properties"])
    check(whole["definitions"])


def test_without_the_forecast_nothing_of_it_is_left(helm: Helm) -> None:
    left = helm.template(WITHOUT_CRDS, "--set=forecast.enabled=false")
    kinds = {m["kind"] for m in yaml.safe_load_all(left) if m and "forecast" in json.dumps(m)}
    # The policy on statuses lets in the forecast of every release, and so names the right of one.
    assert kinds <= {"NetworkPolicy", "ClusterRole", "ValidatingAdmissionPolicy"}
    assert "CronJob" not in left


def test_no_role_asks_for_everything_or_for_what_would_be_more(helm: Helm) -> None:
    roles = [m for m in yaml.safe_load_all(helm.template(WITHOUT_CRDS)) if "rules" in m]
    rules = [rule for role in roles for rule in role["rules"]]
    assert len(rules) > 10
    for rule in rules:
        granted = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not granted & {"*", "secrets", "escalate", "bind", "impersonate", "pods/exec"}


def test_every_pod_starts_where_pod_security_is_restricted(
    cluster: Cluster, namespace: str, helm: Helm
) -> None:
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    pods = pods_of(helm.template(WITHOUT_CRDS))
    assert len(pods) == 5
    for number, given in enumerate(pods):
        spec = given | {"serviceAccountName": "default"}
        cluster.api.post(path, {"metadata": {"name": f"pod-{number}"}, "spec": spec})
    spec["securityContext"] = {}
    refused = cluster.api.request("POST", path, {"metadata": {"name": "lax"}, "spec": spec})
    assert refused.status == 403
    assert 'violates PodSecurity "restricted' in refused.json()["message"]


def test_forecast_account_reads_pools_and_writes_their_status_and_may_do_nothing_else(
    cluster: Cluster, release: str
) -> None:
    def rights(account: str) -> set[str]:
        who = f"--as=system:serviceaccount:{release}:{account}"
        listed = cluster.kubectl("auth", "can-i", "--list", f"--namespace={release}", who)
        return {" ".join(line.split()) for line in listed.splitlines()}

    assert rights(f"{release}-bireme-forecast") - rights("default") == {
        "nodepoolscalers.bireme.dev [] [] [get list forecast]",
        "nodepoolscalers.bireme.dev/status [] [] [patch]",
    }


def test_crds_and_what_they_describe_stay_when_the_release_is_uninstalled(
    cluster: Cluster, helm: Helm
) -> None:
    where = ("--namespace=bireme-system",)
    done = helm("install", "bireme", str(CHART), "--create-namespace", *where, cluster=cluster)
    assert done.returncode == 0, done.stderr
    assert cluster.kubectl("get", "crd", "-o", "name").count("bireme.dev") == len(
        list((CHART / "files" / "crds").iterdir())
    )
    cluster.api.post("/apis/bireme.dev/v1alpha1/queues", queue("kept"))
    done = helm("uninstall", "bireme", *where, cluster=cluster)
    assert done.returncode == 0, done.stderr
    assert cluster.api.get("/apis/bireme.dev/v1alpha1/queues/kept")
    again = helm("install", "bireme", str(CHART), *where, cluster=cluster)
    assert again.returncode == 0, again.stderr
    assert helm("uninstall", "bireme", *where, cluster=cluster).returncode == 0
