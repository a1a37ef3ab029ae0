"""The chart installed, and its programs as local processes with what their pods would have.

Every process has the token of its pod's service account, the settings file of the release's
ConfigMap and, for kube-scheduler, its configuration from there: a missing permission or a setting
that the program does not know fails a test. Addresses and ports alone are the machine's own.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.scenario.helm import CHART, Helm, account_kubeconfig
from tools.controlplane.cluster import Cluster
from tools.controlplane.ports import free_ports
from tools.controlplane.stack import BiremeStack

NAMESPACE: Final = "bireme-system"
RELEASE: Final = "bireme"
ACCOUNTS: Final = {
    "operator-a": "bireme-operator",
    "extender": "bireme-scheduler",
    "kube-scheduler": "bireme-scheduler",
}
_LOCAL: Final = {"BIREME_METRICS_HOST": "127.0.0.1"}


def install(
    cluster: Cluster, helm: Helm, *arguments: str, chart: Path = CHART, wait: bool = False
) -> str:
    """``helm upgrade --install`` of the chart; what Helm says.

    With ``wait`` it returns when all pods are ready, which takes a real node.
    """
    where = (f"--namespace={NAMESPACE}", "--create-namespace")
    waiting = ("--wait", "--timeout=50s") if wait else ()
    arguments = (*where, *waiting, *arguments)
    done = helm("upgrade", "--install", RELEASE, str(chart), *arguments, cluster=cluster)
    if done.returncode:
        raise AssertionError(f"helm upgrade --install failed: {done.stderr}")
    return done.stdout


def uninstall(cluster: Cluster, helm: Helm) -> None:
    """``helm uninstall``."""
    done = helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", cluster=cluster)
    if done.returncode:
        raise AssertionError(f"helm uninstall failed: {done.stderr}")


def config_map(cluster: Cluster, name: str) -> dict[str, str]:
    """The data of a ConfigMap of the release."""
    text = cluster.kubectl("get", "configmap", name, f"--namespace={NAMESPACE}", "-o", "json")
    data: dict[str, str] = json.loads(text)["data"]
    return data


def container(cluster: Cluster, deployment: str, name: str) -> dict[str, Any]:
    """A container of a Deployment of the release."""
    text = cluster.kubectl("get", "deploy", deployment, f"--namespace={NAMESPACE}", "-o", "json")
    containers = json.loads(text)["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = next(c for c in containers if c["name"] == name)
    return found


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[BiremeStack]:
    """The release's programs, started; stopped at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings.yaml"
    settings.write_text(config_map(cluster, "bireme-settings")["settings.yaml"])
    kubeconfigs = {
        program: account_kubeconfig(cluster, NAMESPACE, account, folder / f"{program}.kubeconfig")
        for program, account in ACCOUNTS.items()
    }
    for deployment, name in (("bireme-operator", "operator"), ("bireme-scheduler", "extender")):
        env = {e["name"]: e["value"] for e in container(cluster, deployment, name)["env"]}
        if env.get("BIREME_CONFIG") != "/etc/bireme/settings.yaml":
            raise AssertionError(f"{name} does not read the settings file: {env}")
    (port,) = free_ports(1)  # of the extender's health; operators have one each
    env = {**_LOCAL, "BIREME_METRICS_PORT": str(port), "BIREME_CONFIG": str(settings)}
    scheduler = config_map(cluster, "bireme-scheduler")["config.yaml"]
    with BiremeStack(
        cluster, folder, env, kubeconfigs, scheduler_config=yaml.safe_load(scheduler)
    ) as stack:
        yield stack.start()
