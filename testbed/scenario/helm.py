"""Helm, the chart installed, and its programs as local processes with what their pods would have.

Every process has the token of its pod's service account and the settings of the release, so that a
missing permission or an unknown setting fails a test. Addresses and ports alone are the machine's.
"""

import json
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane.api import Manifest, kubeconfig
from testbed.controlplane.binaries import HELM, build
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.kwokctl import Arguments
from testbed.controlplane.process import free_ports
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import bare_cluster
from testbed.scenario.promises import judged

CHART: Final = Path(__file__).parents[2] / "charts" / "bireme"


class Helm:
    """Runs Helm with caches of its own below ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(
        self, *arguments: str, cluster: Cluster | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``helm ARGUMENTS``, against ``cluster`` or none at all, however it ends."""
        env = {f"HELM_{kind}_HOME": str(self._home) for kind in ("CACHE", "CONFIG", "DATA")}
        env["HOME"] = str(self._home)  # what it learns of a cluster is kept there
        env["KUBECONFIG"] = str(cluster.kubeconfig) if cluster else str(self._home / "none")
        command = [str(build(HELM) / "helm"), *arguments]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def template(self, *arguments: str) -> str:
        """Render the chart as release ``bireme``; RuntimeError carries the reason of a failure."""
        where = "--namespace=bireme-system"
        done = self("template", "bireme", str(CHART), where, *arguments)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout


def account_kubeconfig(
    cluster: Cluster, namespace: str, account: str, path: Path, hours: int = 1
) -> Path:
    """Write a kubeconfig with a token of a service account, good for ``hours``."""
    admin = yaml.safe_load(cluster.kubeconfig.read_text())
    flags = (f"--namespace={namespace}", f"--duration={hours}h")
    token = cluster.kubectl("create", "token", account, *flags).strip()
    config = kubeconfig(admin["clusters"][0]["cluster"], {"token": token})
    path.write_text(yaml.safe_dump(config))
    return path


def pods_of(text: str) -> list[Manifest]:
    """Return the pod spec of everything that makes pods, and of the job that helm test submits."""
    found = []
    for manifest in yaml.safe_load_all(text):
        if manifest["kind"] == "CronJob":
            manifest = manifest["spec"]["jobTemplate"]
        if "template" in manifest.get("spec", {}):
            found.append(manifest["spec"]["template"]["spec"])
        elif manifest["kind"] == "Pod":
            found.append(manifest["spec"])
        elif "job.yaml" in manifest.get("data", {}):
            job = yaml.safe_load(manifest["data"]["job.yaml"])
            found += [task["template"]["spec"] for task in job["spec"]["tasks"]]
    return found


NAMESPACE: Final = "bireme-system"
RELEASE: Final = "bireme"


@dataclass(frozen=True)
class Release:
    """A release of the chart; its objects' names begin with ``prefix``."""

    name: str
    namespace: str

    @property
    def prefix(self) -> str:
        return self.name if "bireme" in self.name else f"{self.name}-bireme"

    @property
    def accounts(self) -> dict[str, str]:
        """The service account of every program."""
        scheduler = f"{self.prefix}-scheduler"
        operator = f"{self.prefix}-operator"
        return {"operator-a": operator, "extender": scheduler, "kube-scheduler": scheduler}


BIREME: Final = Release(RELEASE, NAMESPACE)


def install(
    cluster: Cluster,
    helm: Helm,
    *arguments: str,
    chart: Path = CHART,
    wait: bool = False,
    release: Release = BIREME,
) -> str:
    """``helm upgrade --install`` of the chart.

    With ``wait`` it returns when all pods are ready, which takes a real node.
    """
    where = (f"--namespace={release.namespace}", "--create-namespace")
    waiting = ("--wait", "--timeout=50s") if wait else ()
    arguments = (*where, *waiting, *arguments)
    done = helm("upgrade", "--install", release.name, str(chart), *arguments, cluster=cluster)
    if done.returncode:
        raise AssertionError(f"helm upgrade --install failed: {done.stderr}")
    return done.stdout


@contextmanager
def installed(
    purpose: str,
    nodes: Sequence[Manifest],
    helm: Helm,
    *,
    chart: Path = CHART,
    arguments: Arguments | None = None,
) -> Iterator[Cluster]:
    """A cluster with ``nodes`` onto which the chart was installed, and its history judged.

    ``arguments`` are more flags for its components.
    """
    with (
        bare_cluster(purpose)
        if arguments is None
        else Cluster.start(f"{purpose}-{secrets.token_hex(4)}", arguments=arguments) as cluster
    ):
        cluster.add_nodes(nodes)
        install(cluster, helm, chart=chart)
        with judged(cluster):
            yield cluster


def uninstall(cluster: Cluster, helm: Helm, release: Release = BIREME) -> None:
    done = helm("uninstall", release.name, f"--namespace={release.namespace}", cluster=cluster)
    if done.returncode:
        raise AssertionError(f"helm uninstall failed: {done.stderr}")


def config_map(cluster: Cluster, name: str, namespace: str = NAMESPACE) -> dict[str, str]:
    text = cluster.kubectl("get", "configmap", name, f"--namespace={namespace}", "-o", "json")
    data: dict[str, str] = json.loads(text)["data"]
    return data


def container(
    cluster: Cluster, deployment: str, name: str, namespace: str = NAMESPACE
) -> dict[str, Any]:
    text = cluster.kubectl("get", "deploy", deployment, f"--namespace={namespace}", "-o", "json")
    containers = json.loads(text)["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = next(c for c in containers if c["name"] == name)
    return found


def kubeconfigs(cluster: Cluster, folder: Path, release: Release = BIREME) -> dict[str, Path]:
    """Write the kubeconfig of every program's account to ``folder``; return them by program."""
    return {
        program: account_kubeconfig(
            cluster, release.namespace, account, folder / f"{program}.kubeconfig"
        )
        for program, account in release.accounts.items()
    }


@contextmanager
def programs(cluster: Cluster, folder: Path, release: Release = BIREME) -> Iterator[BiremeStack]:
    """Make the programs of the release, not started; those that run end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings.yaml"
    prefix, namespace = release.prefix, release.namespace
    settings.write_text(config_map(cluster, f"{prefix}-settings", namespace)["settings.yaml"])
    for component, name in (("operator", "operator"), ("scheduler", "extender")):
        made = container(cluster, f"{prefix}-{component}", name, namespace)
        env = {e["name"]: e["value"] for e in made["env"]}
        if env.get("BIREME_CONFIG") != "/etc/bireme/settings.yaml":
            raise AssertionError(f"{name} does not read the settings file: {env}")
    (port,) = free_ports(1)  # of the extender's health; operators have one each
    env = {"BIREME_METRICS_ADDRESS": f"127.0.0.1:{port}", "BIREME_CONFIG": str(settings)}
    scheduler = config_map(cluster, f"{prefix}-scheduler", namespace)["config.yaml"]
    with BiremeStack(
        cluster,
        folder,
        env,
        kubeconfigs(cluster, folder, release),
        scheduler_config=yaml.safe_load(scheduler),
    ) as stack:
        yield stack


@contextmanager
def running(cluster: Cluster, folder: Path, release: Release = BIREME) -> Iterator[BiremeStack]:
    """Run the programs of the release within the block."""
    with programs(cluster, folder, release) as stack:
        yield stack.start()
