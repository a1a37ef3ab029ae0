"""The chart: what it renders, refuses and is allowed, by Helm and by the real API server.

``tests/golden/chart/default.yaml`` is what it renders by default, CRDs and dashboards aside. After
a change that is meant, write it anew: helm template bireme charts/bireme -n bireme-system
--set crds.enabled=false,monitoring.dashboards=false > tests/golden/chart/default.yaml
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.scenario.helm import CHART, Helm, pods_of
from tests.support.scenario.manifests import queue
from tools.controlplane.api import Manifest
from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parents[1] / "golden" / "chart" / "default.yaml"
WITHOUT_CRDS = "--set=crds.enabled=false,monitoring.dashboards=false"
PLACED: Manifest = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "podAnnotations": {"note": "first"},
}
EVERY_VALUE: Manifest = {
    "image": {"registry": "registry.example.com/team", "tag": "1.2", "pullSecrets": ["pull"]},
    "priorityClassName": "system-cluster-critical",
    "defaultQueue": {"spec": {"limit": {"nvidia.com/gpu": 64}}},
    "scheduling": {"orderer": "fifo", "waitBoundSeconds": 3600},
    "checkpoints": {"volume": {"persistentVolumeClaim": {"claimName": "trained"}}},
    "operator": {
        **PLACED,
        "replicas": 2,
        "settings": {"logLevel": "debug"},
        "progress": {"enabled": True, "certificateSecret": "tls", "caConfigMap": "ca"},
        "records": {"volume": {"persistentVolumeClaim": {"claimName": "records"}}},
        "scaleTargets": [{"group": "karpenter.sh", "resource": "nodepools", "names": ["h200"]}],
    },
    "scheduler": {
        **PLACED,
        "replicas": 2,
        "image": {"repository": "example.com/kube-scheduler", "tag": "v1.37.1"},
        "extender": {"settings": {"planWaitSeconds": 0.1}},
    },
    "roles": {"submitters": {"priorityClasses": ["low"]}},
    "monitoring": {"labels": {"release": "prometheus"}},
    "networkPolicies": {
        "egress": {"enabled": True, "apiServer": {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}}
    },
    "forecast": {
        **PLACED,
        "timeZone": "Europe/Berlin",
        "serviceAccount": {"annotations": {"identity": "prometheus-reader"}},
    },
}
ALL_KINDS = (
    "--api-versions=monitoring.coreos.com/v1/PodMonitor",
    "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def of_kind(text: str, kind: str) -> Manifest:
    (found,) = [m for m in yaml.safe_load_all(text) if m and m["kind"] == kind]
    manifest: Manifest = found
    return manifest


@pytest.fixture
def release(cluster: Cluster, namespace: str, helm: Helm) -> Iterator[str]:
    """The chart installed into a namespace of the session's cluster; the release's name."""
    where = f"--namespace={namespace}"
    flags = (WITHOUT_CRDS, "--set=defaultQueue.create=false")
    done = helm("install", namespace, str(CHART), *flags, where, cluster=cluster)
    assert done.returncode == 0, done.stderr
    yield namespace
    helm("uninstall", namespace, where, cluster=cluster)


def test_chart_passes_the_linter(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_chart_renders_what_was_reviewed(helm: Helm) -> None:
    assert helm.template(WITHOUT_CRDS) == GOLDEN.read_text(), __doc__


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
                assert schema["additionalProperties"] is False or schema is whole
                assert schema["propertyNames"] == {"enum": list(schema["properties"])}
            for part in schema.values():
                check(part)

    whole = json.loads((CHART / "values.schema.json").read_text())
    check(whole["properties"])


def test_without_the_forecast_nothing_of_it_is_left(helm: Helm) -> None:
    left = helm.template(WITHOUT_CRDS, "--set=forecast.enabled=false")
    kinds = {m["kind"] for m in yaml.safe_load_all(left) if m and "forecast" in json.dumps(m)}
    assert kinds <= {"NetworkPolicy", "ClusterRole"}
    assert "CronJob" not in left


def test_monitors_and_rules_are_made_where_their_kinds_are_known(helm: Helm) -> None:
    def count(*flags: str) -> int:
        text = helm.template(WITHOUT_CRDS, *flags)
        return sum(m["kind"] in ("PodMonitor", "PrometheusRule") for m in yaml.safe_load_all(text))

    assert count() == 0
    rules = len(list((CHART / "rules").glob("*.yaml")))
    assert count(*ALL_KINDS) == 2 + rules


def test_budgets_are_made_for_more_than_one_replica(helm: Helm) -> None:
    assert "PodDisruptionBudget" not in helm.template(WITHOUT_CRDS)
    two = helm.template(WITHOUT_CRDS, "--set=operator.replicas=2")
    budget = of_kind(two, "PodDisruptionBudget")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_no_role_asks_for_everything_or_for_what_would_be_more(helm: Helm) -> None:
    roles = [m for m in yaml.safe_load_all(helm.template(WITHOUT_CRDS)) if "rules" in m]
    rules = [rule for role in roles for rule in role["rules"]]
    assert len(rules) > 10
    for rule in rules:
        granted = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not granted & {"*", "secrets", "escalate", "bind", "impersonate", "pods/exec"}


def test_api_server_takes_every_object_with_every_value_set(
    cluster: Cluster, namespace: str, helm: Helm, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(EVERY_VALUE))
    text = helm.template(f"--values={values}", f"--namespace={namespace}", "--no-hooks")
    flags = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
    printed = cluster.kubectl("apply", *flags, "-f", "-", input=text)
    assert len(printed.splitlines()) == len([m for m in yaml.safe_load_all(text) if m])
    pod = of_kind(text, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.com/team/bireme-forecast:1.2"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["metadata"]["annotations"] == {"note": "first"}


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
        "nodepoolscalers.bireme.dev [] [] [get list]",
        "nodepoolscalers.bireme.dev/status [] [] [patch]",
    }


def test_crds_and_what_they_describe_stay_when_the_release_is_uninstalled(
    own_cluster: Cluster, helm: Helm
) -> None:
    where = ("--namespace=bireme-system",)
    done = helm("install", "bireme", str(CHART), "--create-namespace", *where, cluster=own_cluster)
    assert done.returncode == 0, done.stderr
    assert own_cluster.kubectl("get", "crd", "-o", "name").count("bireme.dev") == len(
        list((CHART / "files" / "crds").iterdir())
    )
    own_cluster.api.post("/apis/bireme.dev/v1alpha1/queues", queue("kept"))
    done = helm("uninstall", "bireme", *where, cluster=own_cluster)
    assert done.returncode == 0, done.stderr
    assert own_cluster.api.get("/apis/bireme.dev/v1alpha1/queues/kept")
    again = helm("install", "bireme", str(CHART), *where, cluster=own_cluster)
    assert again.returncode == 0, again.stderr
