"""kind on a machine without Docker and without a registry: podman in a sandbox.

The sandbox has processes, mounts and a network of its own, so that neither podman's bridge and
iptables rules nor its storage reach the machine. The API server listens on the loopback inside:
what asks it runs inside, too. What is the whole kernel's is put back at the end: the settings that
a kubelet makes, and control groups.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import CONTROL_PLANE, HELM, KIND, NODE, build, require
from testbed.controlplane.compiling import Report
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.realnode import cgroups
from testbed.controlplane.realnode import obstacle as realnode
from testbed.controlplane.realnode.sandbox import Sandbox
from tools.images import archives
from tools.kind import nodeimage
from tools.kind.programs import PROVIDER_VARIABLE

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("podman", "netavark", "aardvark-dns")
LOAD_TIMEOUT_SECONDS: Final = 300.0
# What kubelet sets for itself (pkg/kubelet/cm), as no namespace has them.
KUBELET_SETTINGS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_GROUP: Final = "libpod_parent"  # where podman puts containers
_MODULES: Final = Path("/lib/modules")
# podman by itself asks systemd for control groups and for more open files than root may have in a
# container; and crun, its default, refuses machines with control groups of both versions.
_CONTAINERS: Final = """\
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[engine.runtimes]
runc = ["{runc}"]
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
log_driver = "k8s-file"
[network]
network_backend = "netavark"
network_config_dir = "/var/lib/containers/networks"
"""


def obstacle() -> str | None:
    """Return why this machine cannot do it; None when it can. Touches nothing."""
    if reason := realnode.obstacle() or archives.obstacle():
        return reason
    if not shutil.which("podman"):
        return f"podman is missing: run `apt-get install {' '.join(PACKAGES)}` as root"
    lists = cgroups.CGROUPS.rglob(f"{_GROUP}/**/cgroup.procs")
    if any(path.read_text() for path in lists):
        return f"podman runs containers in the control group {_GROUP}: stop them"
    return None


class Confined:
    """A sandbox in ``folder`` in which podman has the node image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sandbox = Sandbox(folder)
        self._settings: dict[Path, str] = {}

    def start(self, report: Report = print) -> None:
        """Build what is missing, which takes minutes once, and bring the node image into podman.

        Raises:
            ControlPlaneError: this machine has an ``obstacle``, or a step failed.
        """
        if reason := obstacle():
            raise ControlPlaneError(reason)
        require(*realnode.PACKAGES)
        image = nodeimage.build(report)
        self._settings = {path: path.read_text() for path in map(_setting, KUBELET_SETTINGS)}
        for name in ("bin", "home", "tmp"):
            (self.folder / name).mkdir()
        for bundle, name in ((KIND, "kind"), (HELM, "helm"), (CONTROL_PLANE, "kubectl")):
            (self.folder / "bin" / name).symlink_to(build(bundle, report) / name)
        configuration = _CONTAINERS.format(runc=build(NODE, report) / "runc")
        (self.folder / "containers.conf").write_text(configuration)
        self._sandbox.start()
        self._sandbox.run("ip", "link", "set", "lo", "up")
        if not _MODULES.exists():  # kind mounts it into every node
            self._lay_over_libraries()
        self.run("podman", "load", f"--input={image.path}", timeout_seconds=LOAD_TIMEOUT_SECONDS)

    def run(self, *command: str, timeout_seconds: float = 120.0) -> str:
        """Run a command inside, in the folder of the repository; return what it printed.

        Raises:
            ControlPlaneError: it failed or took too long; carries the end of its output.
        """
        settings = [f"{name}={value}" for name, value in self._environment().items()]
        inside = ["env", f"--chdir={REPOSITORY}", *settings, *command]
        return self._sandbox.run(*inside, timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        """End all that runs inside, and put back what is the whole kernel's."""
        self._sandbox.stop()
        try:
            cgroups.remove(_GROUP)
        finally:
            for path, text in self._settings.items():
                if path.read_text() != text:
                    path.write_text(text)
            shutil.rmtree(self.folder / "lib", ignore_errors=True)  # gigabytes

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            PROVIDER_VARIABLE: "podman",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def _lay_over_libraries(self) -> None:
        """Make ``/lib/modules`` inside alone: a folder of the machine's cannot be made there."""
        libraries, over = _MODULES.parent.resolve(), self.folder / "over"
        for name in ("upper", "work"):
            (over / name).mkdir(parents=True)
        layers = f"lowerdir={libraries},upperdir={over / 'upper'},workdir={over / 'work'}"
        self._sandbox.run("mount", "-t", "overlay", "-o", layers, "overlay", str(libraries))
        self._sandbox.run("mkdir", str(_MODULES))


def _setting(name: str) -> Path:
    return Path("/proc/sys", name)
