"""Helm and the chart: installed releases, and programs that run with their accounts."""

import subprocess
from pathlib import Path
from typing import Final

import yaml

from tools.controlplane.api import Manifest
from tools.controlplane.binaries import build
from tools.controlplane.cluster import Cluster

CHART: Final = Path(__file__).parents[3] / "charts" / "bireme"


class Helm:
    """Runs Helm with caches of its own below ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(
        self, *arguments: str, cluster: Cluster | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``helm ARGUMENTS``, against ``cluster`` or none at all, however it ends."""
        env = {f"HELM_{kind}_HOME": str(self._home) for kind in ("CACHE", "CONFIG", "DATA")}
        env["HOME"] = str(self._home)  # what it learns of a cluster is kept there
        env["KUBECONFIG"] = str(cluster.kubeconfig) if cluster else str(self._home / "none")
        command = [str(build() / "helm"), *arguments]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def template(self, *arguments: str) -> str:
        """What the chart renders as release ``bireme``; RuntimeError with why it does not."""
        where = "--namespace=bireme-system"
        done = self("template", "bireme", str(CHART), where, *arguments)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout


def account_kubeconfig(cluster: Cluster, namespace: str, account: str, path: Path) -> Path:
    """Writes a kubeconfig with a token of a service account, good for an hour, to ``path``."""
    admin = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, f"--namespace={namespace}").strip()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": admin["clusters"],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [
            {
                "name": account,
                "context": {"cluster": admin["clusters"][0]["name"], "user": account},
            }
        ],
        "current-context": account,
    }
    path.write_text(yaml.safe_dump(config))
    return path


def pods_of(text: str) -> list[Manifest]:
    """The pod spec of everything that makes pods, and those of the job that helm test submits."""
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
