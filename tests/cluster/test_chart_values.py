"""What values of the chart do to what it renders: images, security, places, names, accounts.

``tests/golden/chart/every-value.yaml`` sets every value to something that is not its default. But
for the last test no cluster is started.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.kube.api.training_job import TrainingJob
from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.scenario.helm import CHART, Helm, pods_of
from testbed.scenario.renderings import COMPONENTS, every_value, with_switches

pytestmark = pytest.mark.cluster

WITHOUT_CRDS = "--set=crds.enabled=false"
# Maps that a reader sets as a whole.
WHOLE = {"spec", "resources", "labels", "podSecurityContext", "containerSecurityContext"}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def rendered(helm: Helm, values: Manifest, *flags: str) -> list[Manifest]:
    """What the chart renders with these values, the CRDs left out."""
    flags = (WITHOUT_CRDS, *flags, *(f"--set-json={k}={json.dumps(v)}" for k, v in values.items()))
    return [m for m in yaml.safe_load_all(helm.template(*flags)) if m]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [m for m in manifests if m["kind"] == kind]


def pod_templates(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The pod templates of the programs by component."""
    found = {}
    for manifest in manifests:
        if manifest["kind"] == "CronJob":
            manifest = manifest["spec"]["jobTemplate"]
        if template := manifest.get("spec", {}).get("template"):
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return found


def containers(manifests: list[Manifest]) -> dict[str, Manifest]:
    """All containers by name: those of the programs, and of helm test and its job."""
    pods = pods_of(yaml.safe_dump_all(manifests))
    found = [container for pod in pods for container in pod["containers"]]
    assert len({container["name"] for container in found}) == len(found) == 6
    return {container["name"]: container for container in found}


# --- images ---------------------------------------------------------------------------------------


def test_every_image_is_named_by_its_digest_where_it_has_one(helm: Helm) -> None:
    values = every_value()
    given = {name: {"image": values[name]["image"]} for name in COMPONENTS}
    given["scheduler"]["extender"] = {"image": values["scheduler"]["extender"]["image"]}
    found = containers(rendered(helm, {**given, "image": values["image"]}))
    operator = f"registry.example.com/team/gang-operator@sha256:{'a' * 64}"
    assert {name: container["image"] for name, container in found.items()} == {
        "operator": operator,
        "kube-scheduler": f"example.com/upstream/kube-scheduler@sha256:{'b' * 64}",
        "extender": f"registry.example.com/team/gang-extender@sha256:{'c' * 64}",
        "forecast": f"registry.example.com/team/gang-forecast@sha256:{'d' * 64}",
        "submit": operator,
        "worker": operator,
    }


def test_one_global_registry_and_its_secrets_serve_every_pod(helm: Helm) -> None:
    given = {"imageRegistry": "mirror.example.com/k8s", "imagePullSecrets": [{"name": "a"}]}
    values = {"global": given, "imagePullSecrets": [{"name": "b"}, {"name": "a"}]}
    manifests = rendered(helm, values, "--kube-version=v1.36.4-eks-99")
    assert {c["image"] for c in containers(manifests).values()} == {
        "mirror.example.com/k8s/bireme:0.1.0",
        "mirror.example.com/k8s/bireme-forecast:0.1.0",
        "mirror.example.com/k8s/kube-scheduler:v1.36.4",
    }
    secrets = [pod.get("imagePullSecrets") for pod in pods_of(yaml.safe_dump_all(manifests))]
    assert secrets == [[{"name": "a"}, {"name": "b"}]] * 5


@pytest.mark.parametrize(
    "value",
    [
        "operator.image.digest=sha256:short",
        "operator.image.digest=1.2",
        "imagePullSecrets={pull}",
        "global.imagePullSecrets={pull}",
    ],
)
def test_a_digest_or_a_secret_in_another_form_is_refused(helm: Helm, value: str) -> None:
    done = helm("template", "bireme", str(CHART), f"--set={value}")
    assert f"at '/{value.partition('=')[0].replace('.', '/')}" in done.stderr


# --- security contexts -----------------------------------------------------------------------


def test_openshift_profile_leaves_users_and_groups_to_the_cluster(helm: Helm) -> None:
    """As restricted-v2 asks: none of its own, and all else that the level restricted asks."""
    manifests = rendered(helm, {}, f"--values={CHART / 'values-openshift.yaml'}")
    pods = pods_of(yaml.safe_dump_all(manifests))
    assert [pod["securityContext"] for pod in pods] == [
        {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    ] * 5
    assert [c["securityContext"] for c in containers(manifests).values()] == [
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    ] * 6


def test_a_security_context_of_a_component_wins_field_by_field(helm: Helm) -> None:
    values = {
        "podSecurityContext": {"fsGroup": 7, "supplementalGroups": [8]},
        "operator": {"podSecurityContext": {"fsGroup": 9}},
        "scheduler": {"extender": {"containerSecurityContext": {"runAsUser": 10}}},
    }
    manifests = rendered(helm, values)
    operator, scheduler = (pod_templates(manifests)[c]["spec"] for c in COMPONENTS[:2])
    assert operator["securityContext"]["fsGroup"] == 9
    assert operator["securityContext"]["supplementalGroups"] == [8]
    assert scheduler["securityContext"] == {**operator["securityContext"], "fsGroup": 7}
    users = {n: c["securityContext"].get("runAsUser") for n, c in containers(manifests).items()}
    assert {name: user for name, user in users.items() if user} == {"extender": 10}


# --- extension points -------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_extension_point_reaches_the_pods_of_its_component(
    helm: Helm, component: str
) -> None:
    given = every_value()[component]
    values = {component: {**given, "enabled": True} if component == "forecast" else given}
    template = pod_templates(rendered(helm, values))[component]
    pod, container = template["spec"], template["spec"]["containers"][0]
    for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity"):
        assert pod[name] == given[name]
    assert pod["serviceAccountName"] == f"{component}-by-hand"
    assert given["extraVolumes"][0] in pod["volumes"]
    assert given["extraVolumeMounts"][0] in container["volumeMounts"]
    assert given["extraEnv"][0] in container["env"]
    assert set(given.get("extraArgs", ())) <= set(container.get("args", ()))
    assert container["resources"] == given["resources"]
    assert template["metadata"]["labels"]["team"] == component
    assert template["metadata"]["annotations"]["note"] == component


@pytest.mark.parametrize("component", COMPONENTS[:2])
def test_spread_counts_the_components_own_pods_unless_a_selector_says_otherwise(
    helm: Helm, component: str
) -> None:
    pod = pod_templates(rendered(helm, {component: every_value()[component]}))[component]["spec"]
    own, other = (each["labelSelector"] for each in pod["topologySpreadConstraints"])
    assert own["matchLabels"]["app.kubernetes.io/component"] == component
    assert other == {"matchLabels": {"of": component}}


def test_scheduler_and_operator_outlive_what_runs_on_a_full_cluster(helm: Helm) -> None:
    classes = {
        c: t["spec"].get("priorityClassName") for c, t in pod_templates(rendered(helm, {})).items()
    }
    critical = "system-cluster-critical"
    assert classes == {"operator": critical, "scheduler": critical, "forecast": None}


def test_budgets_are_made_for_more_than_one_replica(helm: Helm) -> None:
    assert of_kind(rendered(helm, {}), "PodDisruptionBudget") == []
    (budget,) = of_kind(rendered(helm, {"operator": {"replicas": 2}}), "PodDisruptionBudget")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["maxUnavailable"] == 1


# --- names, labels, accounts -------------------------------------------------------------------


def test_names_namespace_and_labels_are_those_that_values_give(helm: Helm) -> None:
    names = ("nameOverride", "fullnameOverride", "namespaceOverride", "commonLabels")
    usual, given = rendered(helm, {}), rendered(helm, {n: every_value()[n] for n in names})
    assert len(given) == len(usual)
    cluster_wide = {m["metadata"]["name"] for m in given if "namespace" not in m["metadata"]}
    assert all(name.startswith("gang-scheduler") for name in cluster_wide)
    namespaces = {m["metadata"].get("namespace") for m in given}
    assert namespaces == {None, "gangs", "kube-system"}
    labels = [m["metadata"]["labels"] for m in given]
    assert {(each["app.kubernetes.io/name"], each["cost-centre"]) for each in labels} == {
        ("gangs", "42")
    }
    # By which `bireme maintenance plan` finds the operator's settings.
    assert {each["app.kubernetes.io/part-of"] for each in labels} == {"bireme"}
    assert "bireme-system" not in yaml.safe_dump_all(given)


def test_labels_that_the_chart_sets_itself_are_refused(helm: Helm) -> None:
    done = helm("template", "bireme", str(CHART), "--set=commonLabels.helm\\.sh/chart=mine")
    assert "at '/commonLabels/helm.sh~1chart'" in done.stderr


def test_an_account_made_by_hand_gets_the_roles_and_is_known_to_the_policies(helm: Helm) -> None:
    values = {c: {"serviceAccount": every_value()[c]["serviceAccount"]} for c in COMPONENTS}
    manifests = rendered(helm, values)
    accounts = [m["metadata"]["name"] for m in of_kind(manifests, "ServiceAccount")]
    assert accounts == ["bireme-test"]
    bindings = [m for m in manifests if "roleRef" in m]
    bound = {s["name"] for m in bindings for s in m["subjects"]}
    assert bound == {"operator-by-hand", "scheduler-by-hand", "forecast-by-hand", "bireme-test"}
    schemas = of_kind(manifests, "FlowSchema")
    subjects = [s["serviceAccount"]["name"] for s in schemas[0]["spec"]["rules"][0]["subjects"]]
    assert subjects == ["operator-by-hand", "scheduler-by-hand"]
    policies = json.dumps(of_kind(manifests, "ValidatingAdmissionPolicy"))
    assert "system:serviceaccount:bireme-system:operator-by-hand" in policies


def test_an_account_that_is_neither_made_nor_named_is_asked_for(helm: Helm) -> None:
    done = helm("template", "bireme", str(CHART), "--set=operator.serviceAccount.create=false")
    assert "operator.serviceAccount.name must name an account, as create is false" in done.stderr


def test_whoever_may_view_workloads_may_view_queues_and_named_subjects_see_them_everywhere(
    helm: Helm,
) -> None:
    everybody = [{"kind": "Group", "name": "system:authenticated"}]
    manifests = rendered(helm, {"roles": {"clusterViewers": everybody}})
    roles = {m["metadata"]["name"]: m for m in of_kind(manifests, "ClusterRole")}
    (viewed,) = roles["bireme-viewer"]["rules"]
    assert {"trainingjobs", "podgroups", "queues"} <= set(viewed["resources"])
    (binding,) = (m for m in manifests if m.get("subjects") == everybody)
    (rule,) = roles[binding["roleRef"]["name"]]["rules"]
    # Jobs of all namespaces would be seen as well.
    assert not {"trainingjobs", "podgroups"} & set(rule["resources"])
    assert rule["verbs"] == ["get", "list", "watch"]


# --- monitoring --------------------------------------------------------------------------------


def test_all_three_programs_and_kube_scheduler_are_scraped(helm: Helm) -> None:
    manifests = rendered(helm, {"monitoring": {"podMonitors": {"enabled": True}}})
    monitors = of_kind(manifests, "PodMonitor")
    ports = [[e["port"] for e in m["spec"]["podMetricsEndpoints"]] for m in monitors]
    assert ports == [["metrics"], ["metrics", "scheduler"]]
    scheme = monitors[1]["spec"]["podMetricsEndpoints"][1]["scheme"]
    named = containers(manifests)["kube-scheduler"]
    assert scheme == "https"
    assert {"name": "scheduler", "containerPort": 10259} in named["ports"]
    (policy,) = (
        m
        for m in of_kind(manifests, "NetworkPolicy")
        if m["metadata"]["name"] == "bireme-scheduler"
    )
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": "metrics"}, {"port": "scheduler"}]


def test_rules_are_those_of_the_files_without_the_alerts_that_are_switched_off(helm: Helm) -> None:
    def alerts(disabled: list[str]) -> list[Manifest]:
        rules = {"enabled": True, "disabled": disabled}
        found = of_kind(rendered(helm, {"monitoring": {"rules": rules}}), "PrometheusRule")
        return [rule for m in found for group in m["spec"]["groups"] for rule in group["rules"]]

    files = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "rules").iterdir())]
    everything = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    assert alerts([]) == everything
    left = alerts(["BiremePoolAboveForecast"])
    assert left == [rule for rule in everything if rule["alert"] != "BiremePoolAboveForecast"]
    unknown = helm("template", "b", str(CHART), "--set=monitoring.rules.disabled={BiremeNoLeeder}")
    assert "'BiremeNoLeader'" in unknown.stderr


# --- the same everywhere -----------------------------------------------------------------------


def test_the_chart_reads_of_the_cluster_its_version_and_the_owner_of_definitions(
    helm: Helm,
) -> None:
    """So that what is installed is what ``helm template`` shows, and Argo CD and Flux apply."""
    texts = {path.name: path.read_text() for path in (CHART / "templates").rglob("*.*")}
    # A second release leaves the definitions to the first, and is refused beside an older one. No
    # template alone can tell.
    lookups = [name for name, text in texts.items() for _ in range(text.count("lookup "))]
    assert lookups == ["_helpers.tpl", "_helpers.tpl"]
    assert not any("APIVersions" in text for text in texts.values())
    older, newer = (
        rendered(helm, {}, f"--kube-version={version}") for version in ("v1.35.0", "v1.37.1")
    )
    tags = [containers(each)["kube-scheduler"]["image"][-8:] for each in (older, newer)]
    assert tags == [":v1.35.0", ":v1.37.1"]
    drop_image(older)
    drop_image(newer)
    assert older == newer


def drop_image(manifests: list[Manifest]) -> None:
    """Take kube-scheduler's image out of what was rendered."""
    (container,) = (
        c
        for template in pod_templates(manifests).values()
        for c in template["spec"]["containers"]
        if c["name"] == "kube-scheduler"
    )
    del container["image"]


def test_no_two_kube_schedulers_bind_at_once_however_many_replicas_there_are(helm: Helm) -> None:
    """A rollout of one replica has two for a while."""
    for replicas in (1, 2):
        manifests = rendered(helm, {"scheduler": {"replicas": replicas}})
        texts = [(m.get("data") or {}).get("config.yaml") for m in manifests]
        (config,) = (yaml.safe_load(text) for text in texts if text)
        lease = config["leaderElection"]
        assert lease == {
            "leaderElect": True,
            "resourceName": "bireme-scheduler",
            "resourceNamespace": "bireme-system",
        }
    roles = [m for m in of_kind(manifests, "Role") if m["metadata"]["name"] == "bireme-scheduler"]
    rules = [rule for rule in roles[0]["rules"] if rule["resources"] == ["leases"]]
    named = [(rule.get("resourceNames"), rule["verbs"]) for rule in rules]
    assert named == [(None, ["create"]), (["bireme-scheduler"], ["get", "update"])]


# --- profiles, and every value -----------------------------------------------------------------


def test_production_profile_has_two_of_each_program_watched_and_protected(helm: Helm) -> None:
    manifests = rendered(helm, {}, f"--values={CHART / 'values-production.yaml'}")
    deployments = of_kind(manifests, "Deployment")
    assert [m["spec"]["replicas"] for m in deployments] == [2, 2]
    kinds = ("PodDisruptionBudget", "PodMonitor", "PrometheusRule", "NetworkPolicy")
    assert [len(of_kind(manifests, kind)) for kind in kinds] == [2, 2, 2, 4]
    for name, container in containers(manifests).items():
        assert container["resources"]["requests"], name
        assert "memory" in container["resources"]["limits"], name
    for component in COMPONENTS[:2]:
        pod = pod_templates(manifests)[component]["spec"]
        host = pod["topologySpreadConstraints"][0]
        assert (host["topologyKey"], host["whenUnsatisfiable"]) == (
            "kubernetes.io/hostname",
            "DoNotSchedule",
        )


def test_the_job_that_the_notes_tell_to_try_is_one(helm: Helm) -> None:
    image = "--set=image.registry=registry.example.com"
    done = helm("install", "bireme", str(CHART), "--dry-run=client", image, WITHOUT_CRDS)
    text = done.stdout.partition("<<'END'\n")[2].partition("   END\n")[0]
    manifest = yaml.safe_load(text)
    TrainingJob.model_validate(manifest)
    (container,) = manifest["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/bireme:0.1.0"


@pytest.mark.parametrize("profile", ["production", "openshift", "kind"])
def test_every_line_of_a_profile_changes_something(helm: Helm, profile: str) -> None:
    path = CHART / f"values-{profile}.yaml"
    values = yaml.safe_load(path.read_text())
    whole = rendered(helm, {}, f"--values={path}")
    for line in leaves(values):
        assert rendered(helm, without(values, line)) != whole, line


def test_every_value_changes_what_is_rendered(helm: Helm, tmp_path: Path) -> None:
    """None is read by nothing. Some need others to count, some hide others: both are tried."""
    every, defaults = every_value(), yaml.safe_load((CHART / "values.yaml").read_text())

    def render(values: Manifest) -> str:
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return helm.template(f"--values={path}")

    fewest, most = render({}), render(every)
    shown = with_switches(every)
    plain = render(shown)
    unread = []
    for place in leaves(defaults):
        value = at(every, place)
        assert value != at(defaults, place), f"{place} is at its default"
        is_read = render(only(place, value)) != fewest
        is_read = is_read or render(without(every, place)) != most
        if not is_read and render(without(shown, place)) == plain:
            unread.append(".".join(place))
    assert unread == []


def leaves(values: Manifest, *path: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in WHOLE:
            yield from leaves(value, *path, key)
        else:
            yield (*path, key)


def at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def only(path: tuple[str, ...], value: Any) -> Manifest:
    for key in reversed(path):
        value = {key: value}
    made: Manifest = value
    if path[-2:] == ("serviceAccount", "create"):
        made[path[0]]["serviceAccount"]["name"] = "by-hand"
    return made


def without(values: Manifest, path: tuple[str, ...]) -> Manifest:
    left = copy.deepcopy(values)
    del at(left, path[:-1])[path[-1]]
    return left


def test_api_server_takes_every_object_with_every_value_set(
    cluster: Cluster, namespace: str, helm: Helm, tmp_path: Path
) -> None:
    values = with_switches(every_value()) | {"namespaceOverride": namespace, "extraObjects": []}
    values["monitoring"] = {}  # kinds of the Prometheus Operator
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    text = helm.template(f"--values={path}", "--no-hooks", WITHOUT_CRDS)
    flags = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
    printed = cluster.kubectl("apply", *flags, "-f", "-", input=text)
    assert len(printed.splitlines()) == len([m for m in yaml.safe_load_all(text) if m])
