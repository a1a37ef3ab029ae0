"""A node image for kind, built on this machine without Docker or a registry.

It follows kind's ``images/base`` and ``pkg/build/nodeimage``, whose files it takes from kind's Go
module: Debian with systemd, containerd and kubelet, and the images of the cluster's components,
which the tools of this repository compiled. Two things differ: kindnetd, whose source no Go
module has, is replaced by a fixed CNI configuration, which does for a single node and enforces
no NetworkPolicy; and what a machine with control groups of version 1, or without
CAP_SYS_RESOURCE, needs is set in the image, so that configurations of clusters need not.
"""

import functools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testbed.controlplane import binaries
from testbed.controlplane.binaries import (
    CONTROL_PLANE,
    KIND,
    KUBERNETES_VERSION,
    NODE,
    cache_key,
    module_version,
)
from testbed.controlplane.compiling import Report
from testbed.controlplane.process import Process
from testbed.controlplane.realnode.cgroups import CONTROLLERS
from testbed.controlplane.waiting import wait_until
from tools.images import archives, debian
from tools.images.archives import Archive
from tools.images.tool import Buildah, run

NAME: Final = f"docker.io/kindest/node:{KUBERNETES_VERSION}"
KWOK_NAME: Final = f"registry.k8s.io/kwok/kwok:{module_version('kwok', 'sigs.k8s.io/kwok')}"
BASE_NAME: Final = "localhost/bireme-kind-base"
# Those of kind's images/base, but for storage over the network and curl; socat is kubectl's.
PACKAGES: Final = (
    *("systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount"),
    *("kmod", "libseccomp2", "pigz", "e2fsprogs", "bash", "ca-certificates", "jq", "procps"),
    "socat",
)
# The network of pods in kind's default configuration, of which a single node has this part.
PODS: Final = "10.244.0.0/24"
IMPORT_TIMEOUT_SECONDS: Final = 300.0
# containerd stores images and nothing else: it runs on this machine, beside other containerds.
_CONTAINERD: Final = """\
version = 3
root = "{root}"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri",
]
[grpc]
address = "{folder}/containerd.sock"
"""
_NO_MANIFEST: Final = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: pod-network, namespace: kube-system}
data: {where: "/etc/cni/net.d of the node: a fixed configuration, in place of kindnetd"}
"""


def build(report: Report = print) -> Archive:
    """Return the node image as an OCI archive; made where the cache lacks it.

    Raises:
        ControlPlaneError: this machine cannot build images, or a step failed.
    """
    bundles = (CONTROL_PLANE, NODE, KIND)
    made_by = [Path(file).read_bytes() for file in (__file__, debian.__file__)]
    version = b"2" if CONTROLLERS.exists() else b"1"  # of control groups
    name = archives.digest(*made_by, *(cache_key(each).encode() for each in bundles), version)
    folder = archives.cache() / f"kindnode-{name}"
    if not folder.is_dir():
        for bundle in bundles:
            binaries.build(bundle, report)
        archives.make(folder, _build, report)
    return Archive(NAME, folder / "node.tar")


def kwok(report: Report = print) -> Archive:
    """Return an image of our kwok, named as manifests/kwok names it, as an OCI archive."""
    folder = archives.cache() / f"kwok-{archives.digest(cache_key().encode(), KWOK_NAME.encode())}"
    if not folder.is_dir():
        archives.make(folder, _build_kwok, report)
    return Archive(KWOK_NAME, folder / "kwok.tar")


def _build_kwok(buildah: Buildah, folder: Path, report: Report) -> None:
    programs = binaries.build(report=report)
    recipe = 'FROM scratch\nCOPY kwok /usr/local/bin/\nENTRYPOINT ["/usr/local/bin/kwok"]\n'
    buildah.build(KWOK_NAME, programs, recipe=recipe)
    buildah.save(KWOK_NAME, folder / "kwok.tar")


@dataclass(frozen=True, slots=True)
class _Component:
    """An image of one program, which ``bundle`` has; without a name, of the base alone."""

    name: str
    bundle: binaries.Bundle
    program: str
    base: str = "scratch"

    @property
    def recipe(self) -> str:
        lines = [f"FROM {self.base}", "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin"]
        if self.program:
            lines += [f"COPY {self.program} /usr/local/bin/"]
            lines += [f'ENTRYPOINT ["/usr/local/bin/{self.program}"]']
        return "\n".join([*lines, ""])


def _build(buildah: Buildah, folder: Path, report: Report) -> None:
    files = _Source.find()
    components = _components(files)
    report("making Debian for kind's node: a minute")
    with _container(buildah, "scratch", BASE_NAME) as root:
        debian.install(root, PACKAGES)
    report("building the images of the cluster's components")
    for component in components:
        programs = binaries.build(component.bundle)
        buildah.build(component.name, programs, recipe=component.recipe)
    report(f"assembling {NAME}")
    names = [component.name for component in components]
    with _container(buildah, BASE_NAME, NAME, *_node_options()) as root:
        _fill(root, files)
        _preload(buildah, root, names)
    buildah.save(NAME, folder / "node.tar")
    for name in (NAME, BASE_NAME, *names):  # gigabytes, of which the archive has what is needed
        buildah.run("rmi", "--force", name)


@contextmanager
def _container(buildah: Buildah, base: str, name: str, *options: str) -> Iterator[Path]:
    """Yield the root of a container of ``base``; configured by ``options`` it becomes ``name``."""
    container = buildah.run("from", "--pull-never", base).strip()
    try:
        yield Path(buildah.run("mount", container).strip())
        buildah.run("umount", container)
        buildah.run("config", *options, container)
        buildah.run("commit", "--quiet", container, name)
    finally:
        buildah.run("rm", container)


def _node_options() -> Iterator[str]:
    """Yield what kind's images/base/Dockerfile sets, as options of ``buildah config``."""
    yield "--env=container=docker"
    yield "--env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    yield "--stop-signal=SIGRTMIN+3"
    words = ["/usr/local/bin/entrypoint", "/sbin/init"]
    if not CONTROLLERS.exists():
        # Else systemd mounts the tree of version 2 as well, whose groups all nodes would share.
        words.append("systemd.unified_cgroup_hierarchy=0")
        words.append("systemd.legacy_systemd_cgroup_controller=1")
    yield f"--entrypoint={json.dumps(words)}"
    yield "--cmd="


@dataclass(frozen=True, slots=True)
class _Source:
    """Kind's source: the files of its base image, and texts in its Go code."""

    base_files: Path
    storage: str
    """The manifest of the default StorageClass, with the names of its two images."""
    kubeadm: str
    containerd: str

    @classmethod
    def find(cls) -> "_Source":
        program = {each.name: each for each in KIND.binaries}
        kind = binaries.source(program["kind"], "sigs.k8s.io/kind")
        kubernetes = binaries.source(program["kubeadm"], "k8s.io/kubernetes")
        return cls(
            kind / "images/base/files",
            _constant(
                (kind / "pkg/build/nodeimage/const_storage.go").read_text(),
                "defaultStorageManifest",
            ),
            (kubernetes / "cmd/kubeadm/app/constants/constants.go").read_text(),
            (kind / "images/base/files/etc/containerd/config.toml").read_text(),
        )

    def image(self, name: str) -> str:
        """Return the whole name of one of the images in the manifest of the StorageClass."""
        return _only(rf"docker\.io/kindest/{name}:\S+", self.storage)

    def version(self, constant: str) -> str:
        """Return a version that kubeadm has as a constant."""
        return _only(rf'(?<=\b{constant} = ")[^"]+', self.kubeadm)

    def sandbox_image(self) -> str:
        """Return the whole name of the image that holds the namespaces of a pod."""
        return _only(r'(?<=\bsandbox_image = ")[^"]+', self.containerd)


def _only(pattern: str, text: str) -> str:
    """Return what the pattern matches, which may be there several times but is always the same."""
    found: set[str] = set(re.findall(pattern, text))
    if len(found) != 1:
        raise ValueError(f"{sorted(found)}: the source of kind or kubeadm has not one {pattern}")
    return found.pop()


def _constant(text: str, name: str) -> str:
    """Return a constant of Go code, of several lines, with other constants put into it."""
    short = dict(re.findall(r'^const (\w+) = "([^"]*)"', text, re.MULTILINE))
    body = re.search(rf"const {name} = `(.*)`\n\Z", text, re.DOTALL)
    if body is None:
        raise ValueError(f"kind's source has no constant {name} at the end of its file")
    return re.sub(r"` \+ (\w+) \+ `", lambda match: short[match[1]], body[1])


def _components(files: _Source) -> list[_Component]:
    registry, version = "registry.k8s.io", KUBERNETES_VERSION
    own = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    etcd, coredns = files.version("DefaultEtcdVersion"), files.version("CoreDNSVersion")
    return [
        *(_Component(f"{registry}/{each}:{version}", CONTROL_PLANE, each) for each in own),
        _Component(f"{registry}/etcd:{etcd}", KIND, "etcd"),
        _Component(f"{registry}/coredns/coredns:{coredns}", KIND, "coredns"),
        _Component(files.sandbox_image(), NODE, "pause"),
        _Component(f"{registry}/kube-proxy:{version}", NODE, "kube-proxy", BASE_NAME),
        _Component(
            files.image("local-path-provisioner"), KIND, "local-path-provisioner", BASE_NAME
        ),
        _Component(files.image("local-path-helper"), KIND, "", BASE_NAME),
    ]


def _fill(root: Path, files: _Source) -> None:
    """Make a node of kind out of Debian."""
    _copy_files(root, files.base_files)
    _place_programs(root)
    _boot(root)
    # kind applies the manifest of a network for pods, and fails where there is none.
    (root / "etc/cni/net.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/cni/net.d/10-pods.conflist").write_text(json.dumps(pod_network()))
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    (root / "kind/manifests").mkdir()
    (root / "kind/manifests/default-cni.yaml").write_text(_NO_MANIFEST)
    (root / "kind/manifests/default-storage.yaml").write_text(files.storage)
    (root / "kind/version").write_text(KUBERNETES_VERSION)
    for left in ("etc/resolv.conf", "etc/hostname"):  # of the machine that builds
        (root / left).unlink(missing_ok=True)


def _copy_files(root: Path, source: Path) -> None:
    """Copy the files of kind's base image, and set what the module's docstring says."""
    for file in source.rglob("*"):
        relative = file.relative_to(source)
        if file.is_file() and relative.parts[0] != "LICENSES":
            target = root / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            target.chmod(0o755 if target.parent.name == "bin" else 0o644)
    restricted = "restrict_oom_score_adj = "
    _change(root / "etc/containerd/config.toml", f"{restricted}false", f"{restricted}true")
    if not CONTROLLERS.exists():
        arguments = "KUBELET_EXTRA_ARGS="
        _change(root / "etc/default/kubelet", arguments, f"{arguments}--fail-cgroupv1=false ")
    # Debian's own set fs.protected_*, which are the whole machine's.
    for folder in ("usr/lib/sysctl.d", "etc/sysctl.d"):
        for file in (root / folder).glob("*.conf"):
            if not (source / "etc/sysctl.d" / file.name).exists():
                file.unlink()


def _change(path: Path, found: str, wanted: str) -> None:
    text = path.read_text()
    if found not in text:
        raise ValueError(f"{path.name} of kind's base image has no {found!r}")
    path.write_text(text.replace(found, wanted))


def _place_programs(root: Path) -> None:
    folders = {bundle: binaries.build(bundle) for bundle in (CONTROL_PLANE, NODE, KIND)}
    containerd = ("containerd", "ctr", "containerd-shim-runc-v2")
    for bundle, names, target in (
        (NODE, containerd, "usr/local/bin"),
        (KIND, ("crictl",), "usr/local/bin"),
        (NODE, ("runc",), "usr/local/sbin"),
        (NODE, ("host-local", "loopback", "portmap"), "opt/cni/bin"),
        (KIND, ("ptp",), "opt/cni/bin"),
        (NODE, ("kubelet",), "usr/bin"),
        (KIND, ("kubeadm",), "usr/bin"),
        (CONTROL_PLANE, ("kubectl",), "usr/bin"),
    ):
        (root / target).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(folders[bundle] / name, root / target)
    spec: dict[str, Any] = json.loads(run(["chroot", str(root), "ctr", "oci", "spec"]))
    hook = {"path": "/kind/bin/mount-product-files.sh"}
    spec["hooks"] = {"createContainer": [hook]}
    del spec["process"]["rlimits"]
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))


def _boot(root: Path) -> None:
    """Let systemd start what a node runs, and nothing of what Debian starts."""
    units = root / "lib/systemd/system"
    for pattern in (
        "sysinit.target.wants/systemd-tmpfiles-setup.service",
        "multi-user.target.wants/*",
        "local-fs.target.wants/*",
        "sockets.target.wants/*udev*",
        "sockets.target.wants/*initctl*",
        "basic.target.wants/*",
    ):
        for unit in units.glob(pattern):
            unit.unlink()
    for unit in (root / "etc/systemd/system").glob("*.wants/*"):
        unit.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as file:
        file.write("ReadKMsg=no\n")
    init = root / "sbin/init"
    init.unlink(missing_ok=True)
    init.symlink_to("/usr/lib/systemd/systemd")
    systemctl = functools.partial(_systemctl, root)
    systemctl("enable", "kubelet.service", "containerd.service", "undo-mount-hacks.service")
    systemctl("mask", "systemd-binfmt.service")  # it writes what is the whole kernel's


def _systemctl(root: Path, *arguments: str) -> None:
    run(["chroot", str(root), "systemctl", *arguments])


def pod_network() -> dict[str, Any]:
    """Return the CNI list of kindnetd for a cluster of one node."""
    routes, ranges = [{"dst": "0.0.0.0/0"}], [[{"subnet": PODS}]]
    ipam = {"type": "host-local", "dataDir": "/run/cni-ipam-state"}
    return {
        "cniVersion": "0.3.1",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": {**ipam, "routes": routes, "ranges": ranges}},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _preload(buildah: Buildah, root: Path, names: list[str]) -> None:
    """Bring images into the store of the node's containerd, packed, as kind does."""
    programs = binaries.build(NODE)
    store = root / "var/lib/containerd"
    store.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=archives.cache(), prefix="partial-") as name:
        folder = Path(name)
        config = folder / "config.toml"
        config.write_text(_CONTAINERD.format(root=store, folder=folder))
        command = [str(programs / "containerd"), "--config", str(config)]
        socket = folder / "containerd.sock"
        with Process("containerd", command, folder / "log", ready_url="") as containerd:
            containerd.start()
            wait_until(socket.exists, 30, "containerd", containerd.log_tail)
            client = [str(programs / "ctr"), f"--address={socket}", "--namespace=k8s.io"]
            for image in names:
                archive = folder / "image.tar"
                buildah.save(image, archive)
                label = "--label=io.cri-containerd.pinned=pinned"
                how = [label, "--all-platforms", "--no-unpack", "--digests"]
                run([*client, "images", "import", *how, str(archive)])
                archive.unlink()
