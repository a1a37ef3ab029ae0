"""What ``make kind-up`` does, for real: kind from its Go module, podman, a node image of our own.

``make verify`` runs it, since the first run compiles kind's programs and makes the image.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from testbed.controlplane.binaries import output, require
from testbed.controlplane.realnode import cgroups
from tools.images.archives import build
from tools.kind import nodeimage
from tools.kind.confined import KUBELET_SETTINGS, Confined, obstacle
from tools.kind.installation import NAMESPACE

ASKED_FOR: Final = "BIREME_KIND"
UP_TIMEOUT_SECONDS: Final = 600.0
EXAMPLE: Final = Path(__file__).parents[2] / "manifests" / "examples" / "02-torch-ddp.yaml"
STEPS: Final = ("the cluster", "images on its node", "Bireme", "helm test", "fake nodes")


@pytest.fixture(scope="module")
def able() -> None:
    if ASKED_FOR not in os.environ:
        pytest.skip(f"takes minutes, the first time a quarter of an hour: set {ASKED_FOR}=1")
    if reason := obstacle():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def before(able: None) -> dict[str, Any]:
    """The state of the machine before anything was started."""
    require("iptables")
    return state()


@pytest.fixture(scope="module")
def kind(before: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Confined]:
    """A sandbox with podman, kind, helm and kubectl, and kind's node image."""
    confined = Confined(tmp_path_factory.mktemp("kind"))
    try:
        confined.start()
        yield confined
    finally:
        confined.stop()


@pytest.fixture(scope="module")
def said(kind: Confined) -> str:
    """What ``make kind-up`` printed; its images are those that the cache has."""
    archives = [f"--archive={each.path}" for each in (build().bireme, nodeimage.kwok())]
    up = (sys.executable, "-m", "tools.kind", "up", f"--image={nodeimage.NAME}", *archives)
    return kind.run(*up, timeout_seconds=UP_TIMEOUT_SECONDS)


def test_the_chart_is_installed_and_tested_before_the_fake_nodes_come(
    said: str, kind: Confined
) -> None:
    print(said)  # noqa: T201  # for -s: the times of docs/kind.md
    ended = [line.partition(":")[0] for line in said.splitlines() if line.endswith(" s")]
    assert tuple(ended) == STEPS
    nodes = kind.run("kubectl", "get", "nodes", "-o", "name").split()
    assert len(nodes) == 17
    storage = ("-n", "local-path-storage", "rollout", "status", "deploy/local-path-provisioner")
    kind.run("kubectl", *storage, "--timeout=60s")


def test_a_gang_of_four_runs_to_its_end_and_why_says_so(
    said: str, kind: Confined, tmp_path: Path
) -> None:
    job = yaml.safe_load(EXAMPLE.read_text())
    for task in job["spec"]["tasks"]:
        task["template"]["metadata"] = {"annotations": {"fake.bireme.dev/duration": "10s"}}
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))
    bireme = (sys.executable, "-m", "bireme.cli")
    kind.run(*bireme, "submit", str(manifest), "--wait", "60s", "--until", "running")
    why = kind.run(*bireme, "why", "resnet-ddp")
    assert "all 4 replicas run on 4 node(s)" in why
    assert "on gpu-00" in why
    end = "--for=jsonpath={.status.phase}=Succeeded"
    kind.run("kubectl", "wait", end, "btj/resnet-ddp", "--timeout=60s")
    assert "Succeeded" in kind.run(*bireme, "why", "resnet-ddp").splitlines()[0]


def test_what_asks_for_no_gpu_never_lands_on_a_fake_node(said: str, kind: Confined) -> None:
    inside = (f"--namespace={NAMESPACE}",)
    kind.run("kubectl", *inside, "rollout", "restart", "deployment")
    for name in ("bireme-operator", "bireme-scheduler"):
        kind.run("kubectl", *inside, "rollout", "status", f"deploy/{name}", "--timeout=90s")
    where = "-o=jsonpath={.items[*].spec.nodeName}"
    assert set(kind.run("kubectl", *inside, "get", "pods", where).split()) == {
        "bireme-control-plane"
    }
    kind.run("helm", "test", "bireme", *inside, "--timeout=120s")


def test_uninstalled_and_deleted_nothing_is_left(
    said: str, kind: Confined, before: dict[str, Any]
) -> None:
    kind.run("helm", "uninstall", "bireme", f"--namespace={NAMESPACE}", "--wait")
    assert not kind.run("kubectl", f"--namespace={NAMESPACE}", "get", "deploy", "-o", "name")
    kind.run(sys.executable, "-m", "tools.kind", "down")
    assert not kind.run("podman", "ps", "--all", "--quiet")
    assert not kind.run("podman", "volume", "ls", "--quiet")
    kind.stop()
    assert state() == before
    assert not list(cgroups.CGROUPS.glob("**/libpod*"))


def state() -> dict[str, Any]:
    """What of this machine a container engine or a kubelet could change."""
    kernel = Path("/proc/sys")
    settings = [kernel / name for name in (*KUBELET_SETTINGS, "net/ipv4/ip_forward")]
    settings += sorted(kernel.glob("fs/protected_*"))
    rules = output(["iptables-save"], timeout_seconds=30).splitlines()
    return {
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "rules": [line for line in rules if line.startswith("-")],  # the others have times, counts
        "settings": {str(path): path.read_text() for path in settings},
    }
