"""The chart: what it renders, refuses and is allowed, by Helm and by the real API server.

``tests/golden/chart/default.yaml`` is what it renders by default, CRDs aside. After a change that
is meant, write it anew: helm template bireme charts/bireme -n bireme-system
--set crds.enabled=false > tests/golden/chart/default.yaml
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api import Manifest
from controlplane.cluster import Cluster
from scenario.helm import CHART, Helm
from scenario.manifests import queue

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parents[1] / "golden" / "chart" / "default.yaml"
WITHOUT_CRDS = "--set=crds.enabled=false"
EVERY_VALUE: Manifest = {
    "image": {"registry": "registry.example.com/team", "tag": "1.2", "pullSecrets": ["pull"]},
    "forecast": {
        "timeZone": "Europe/Berlin",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "podAnnotations": {"note": "first"},
        "serviceAccount": {"annotations": {"identity": "prometheus-reader"}},
    },
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def rendered(helm: Helm, *arguments: str) -> str:
    done = helm("template", "bireme", str(CHART), "--namespace=bireme-system", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_kind(text: str, kind: str) -> Manifest:
    (found,) = [m for m in yaml.safe_load_all(text) if m and m["kind"] == kind]
    manifest: Manifest = found
    return manifest


@pytest.fixture
def release(cluster: Cluster, namespace: str, helm: Helm) -> Iterator[str]:
    """The chart installed into a namespace of the session's cluster; the release's name."""
    where = (f"--namespace={namespace}", "--wait=watcher")
    done = helm("install", namespace, str(CHART), WITHOUT_CRDS, *where, cluster=cluster)
    assert done.returncode == 0, done.stderr
    yield namespace
    helm("uninstall", namespace, *where, cluster=cluster)


def test_chart_passes_the_linter(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_chart_renders_what_was_reviewed(helm: Helm) -> None:
    assert rendered(helm, WITHOUT_CRDS) == GOLDEN.read_text(), __doc__


def test_every_crd_is_in_the_chart_and_is_kept_when_the_release_goes(helm: Helm) -> None:
    crds = [m for m in yaml.safe_load_all(rendered(helm)) if m["kind"].startswith("CustomRes")]
    assert len(crds) == len(list((CHART / "files" / "crds").iterdir()))
    assert {m["metadata"]["annotations"]["helm.sh/resource-policy"] for m in crds} == {"keep"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("forecast.schedul=x", "at '/forecast': additional properties 'schedul' not allowed"),
        ("forcast.enabled=true", "additional properties 'forcast' not allowed"),
        ("forecast.enabled=maybe", "at '/forecast/enabled': got string, want boolean"),
        ("forecast.schedule=tomorrow", "at '/forecast/schedule'"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
    ],
)
def test_value_that_the_chart_does_not_know_is_refused_by_its_place(
    helm: Helm, value: str, said: str
) -> None:
    done = helm("template", "bireme", str(CHART), "--set", value)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_has_a_place_in_the_schema() -> None:
    """Otherwise a new value could not be set: the schema refuses what it does not list."""

    def check(values: Any, schema: Manifest, path: str) -> None:
        if isinstance(values, dict) and "properties" in schema:
            assert set(values) <= set(schema["properties"]), path
            for name, value in values.items():
                check(value, schema["properties"][name], f"{path}.{name}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


def test_without_the_forecast_nothing_of_it_is_left(helm: Helm) -> None:
    assert rendered(helm, WITHOUT_CRDS, "--set=forecast.enabled=false").strip() == ""


def test_api_server_takes_every_object_with_every_value_set(
    cluster: Cluster, namespace: str, helm: Helm, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(EVERY_VALUE))
    text = rendered(helm, f"--values={values}", f"--namespace={namespace}")
    flags = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
    said = cluster.kubectl("apply", *flags, "-f", "-", input=text)
    assert len(said.splitlines()) == len([m for m in yaml.safe_load_all(text) if m])
    pod = of_kind(text, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.com/team/bireme-forecast:1.2"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["metadata"]["annotations"] == {"note": "first"}


def test_forecast_pod_starts_where_pod_security_is_restricted(
    cluster: Cluster, namespace: str, helm: Helm
) -> None:
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    job = of_kind(rendered(helm, WITHOUT_CRDS), "CronJob")["spec"]["jobTemplate"]["spec"]
    spec = job["template"]["spec"] | {"serviceAccountName": "default"}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    cluster.api.post(path, {"metadata": {"name": "forecast"}, "spec": spec})
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
