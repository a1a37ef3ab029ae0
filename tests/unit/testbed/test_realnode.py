"""Parts of a real node: addresses, configuration, credentials, its pause image."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from testbed.controlplane.__main__ import main
from testbed.controlplane.binaries import CONTROL_PLANE, NODE, Bundle
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.realnode import cgroups, network, obstacle, settings
from testbed.controlplane.realnode.credentials import Authority
from testbed.controlplane.realnode.network import Network
from testbed.controlplane.realnode.pause import write_image
from testbed.controlplane.realnode.sandbox import Sandbox


def test_no_two_clusters_share_an_address() -> None:
    everything = [
        (n.interface, n.host, n.node, n.pods, n.services, n.api_service)
        for n in map(Network, range(network.NUMBERS))
    ]
    words = [word for each in everything for word in each]
    assert len(words) == len(set(words))
    assert max(len(name) for name, *_ in everything) < 16  # what the kernel takes


def test_a_number_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {Network(n).interface for n in range(network.NUMBERS)} - {"bireme42"}
    asked: list[list[str]] = []

    def run(command: list[str]) -> None:
        asked.append(command)
        if command[:3] == ["ip", "link", "add"] and command[3] in taken:
            raise ControlPlaneError("RTNETLINK answers: File exists")

    monkeypatch.setattr(network, "_run", run)
    assert Network.claim(1) == Network(42)
    assert ["ip", "route", "add", "10.199.42.0/24", "via", "10.198.42.2"] in asked
    taken.add("bireme42")
    with pytest.raises(ControlPlaneError, match="all 256 networks are taken"):
        Network.claim(1)


def test_a_link_that_the_kernel_refuses_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str]) -> None:
        asked.append(command)
        raise ControlPlaneError("Operation not permitted")

    monkeypatch.setattr(network, "_run", run)
    with pytest.raises(ControlPlaneError, match="Operation not permitted"):
        Network.claim(1)
    assert len(asked) == 1


def test_programs_agree_on_addresses_and_images() -> None:
    own = Network(7)
    kubelet = yaml.safe_load(settings.kubelet(own, "group", Path("/ca.crt")))
    proxy = yaml.safe_load(settings.kube_proxy(own, Path("/proxy")))
    containerd = tomllib.loads(settings.containerd(own, Path("/bin-folder"), Path("/cni")))
    pods = json.loads(settings.pod_network(own))
    names = settings.coredns(own, Path("/names"))
    assert kubelet["clusterDNS"] == [own.node]
    assert f"bind {own.node}" in names
    assert kubelet["clusterDomain"] in names
    assert pods["plugins"][0]["ipam"]["ranges"] == [[{"subnet": proxy["clusterCIDR"]}]]
    plugins = containerd["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == settings.PAUSE
    assert plugins["io.containerd.cri.v1.runtime"]["cni"]["bin_dirs"] == ["/bin-folder"]
    assert kubelet["cgroupRoot"] == "/group"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here, to sign with")
def test_credentials_are_signed_by_the_authority_of_the_cluster(tmp_path: Path) -> None:
    authority = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    authority += ["ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=authority", "-days", "1"]
    pair = ["-keyout", str(tmp_path / "ca.key"), "-out", str(tmp_path / "ca.crt")]
    subprocess.run([*authority, *pair], capture_output=True, check=True, timeout=60)
    made = Authority(tmp_path, "https://10.198.7.1:1")
    target = made.admit("system:node:real", "system:nodes", tmp_path / "kubelet.kubeconfig")
    config = yaml.safe_load(target.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.198.7.1:1"
    certificate = config["users"][0]["user"]["client-certificate"]
    verify = ["openssl", "verify", "-purpose", "sslclient", "-CAfile", str(tmp_path / "ca.crt")]
    subprocess.run([*verify, certificate], capture_output=True, check=True, timeout=60)
    show = ["openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", certificate]
    subject = subprocess.run(show, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "CN=system:node:real,O=system:nodes" in subject
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(
        ControlPlaneError, match=r"-subj /CN=other .*failed with status 1; it must be version 3"
    ):
        made.admit("other", "", tmp_path / "other.kubeconfig")


def test_pause_image_is_one_layer_with_its_digest(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    archive = write_image(program, "localhost/pause:1", tmp_path / "pause.tar")
    with tarfile.open(archive) as image:
        files = {m.name: image.extractfile(m).read() for m in image}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    config = json.loads(files[manifest["Config"]])
    (layer,) = manifest["Layers"]
    digest = f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"
    assert config["rootfs"]["diff_ids"] == [digest]
    with tarfile.open(fileobj=io.BytesIO(files[layer])) as inside:
        member = inside.getmember(config["config"]["Entrypoint"][0].lstrip("/"))
    assert member.mode & 0o111 == 0o111


def test_control_groups_are_made_in_every_tree_and_removed_with_all_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [tmp_path / "cpuset", tmp_path / "memory"]
    for tree in trees:
        tree.mkdir()
    (trees[0] / "cpuset.cpus").write_text("0-1")
    (trees[0] / "cpuset.mems").write_text("0")
    (trees[1] / "cpu.shares").write_text("1024")
    monkeypatch.setattr(cgroups, "_trees", lambda: trees)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    cgroups.make("node")
    assert (trees[1] / "node" / "cpu.shares").read_text() == "4096"
    assert (trees[0] / "node" / "cpuset.cpus").read_text() == "0-1"
    for file in tmp_path.glob("*/node/*"):
        file.unlink()  # in a real tree they go with their group
    (trees[1] / "node" / "kubepods" / "pod-1").mkdir(parents=True)
    cgroups.remove("node")
    assert not any((tree / "node").exists() for tree in trees)
    cgroups.remove("node")  # twice is fine


def test_version_two_hands_its_controllers_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_trees", lambda: [tmp_path])
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path)
    monkeypatch.setattr(cgroups, "CONTROLLERS", tmp_path / "cgroup.controllers")
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    cgroups.make("node")
    assert (tmp_path / "node").is_dir()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"  # the last of two writes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sys.platform": "darwin"}, "needs Linux, and this is darwin"),
        ({"os.geteuid": lambda: 1000}, "needs root"),
        (
            {"testbed.controlplane.realnode.obstacle.effective": lambda: 0},
            "CAP_NET_ADMIN and CAP_SYS_ADM",
        ),
        (
            {"testbed.controlplane.realnode.obstacle.CGROUPS": Path("/nowhere")},
            "mount /nowhere writable",
        ),
        (
            {"testbed.controlplane.realnode.obstacle.BRIDGE_FILTER": Path("/nowhere")},
            "br_netfilter",
        ),
        (
            {"testbed.controlplane.realnode.obstacle.cache_root": lambda: Path("/run/x")},
            "use another",
        ),
    ],
)
def test_what_a_machine_lacks_is_named(
    change: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = {
        "sys.platform": "linux",
        "os.geteuid": lambda: 0,
        "testbed.controlplane.realnode.obstacle.effective": lambda: -1,
        "testbed.controlplane.realnode.obstacle.CGROUPS": Path("/"),
        "testbed.controlplane.realnode.obstacle.BRIDGE_FILTER": Path("/"),
        "testbed.controlplane.realnode.obstacle.cache_root": lambda: Path("/cache"),
        "testbed.controlplane.binaries.obstacle": lambda *_names: None,
        "os.access": lambda path, _mode: path.exists(),
    }
    for name, value in able.items():
        monkeypatch.setattr(name, value)
    assert obstacle.obstacle() is None
    for name, value in change.items():
        monkeypatch.setattr(name, value)
    assert message in (obstacle.obstacle() or "")


def test_a_build_where_possible_says_why_it_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: list[str] = []

    def build(bundle: Bundle, report: object) -> Path:
        built.append(bundle.name)
        return Path("/built")

    monkeypatch.setattr("testbed.controlplane.__main__.build", build)
    monkeypatch.setattr("testbed.controlplane.__main__.obstacle", lambda: "a real node needs root")
    assert main(["build", "--node", "--where-possible"]) == 0
    assert built == [CONTROL_PLANE.name]
    assert "no real node: a real node needs root" in capsys.readouterr().out
    assert main(["build", "--node"]) == 0
    assert built[1:] == [CONTROL_PLANE.name, NODE.name]


def test_a_sandbox_that_does_not_run_is_named_and_stopping_it_is_fine(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "node")
    sandbox.stop()
    with pytest.raises(ControlPlaneError, match=r"node does not run: start it first"):
        sandbox.run("true")
