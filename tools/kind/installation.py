"""A kind cluster with Bireme on it and fake GPU nodes: made, and removed.

The order matters. The chart comes before the fake nodes, so that a program of Bireme is tried where
pods are real; later the taint of the fake nodes keeps everything away that asks for no GPU.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from testbed.controlplane.binaries import output
from testbed.controlplane.compiling import Report
from testbed.controlplane.errors import ControlPlaneError
from tools.kind.programs import Programs

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CONFIG: Final = REPOSITORY / "kind-config.yaml"
CHART: Final = REPOSITORY / "charts" / "bireme"
FAKE_NODES: Final = REPOSITORY / "manifests" / "kwok"
NAMESPACE: Final = "bireme-system"
# The first image of a node is a download of about a gigabyte, those of Bireme one of packages.
LONG_SECONDS: Final = 1800.0
READY_SECONDS: Final = 180


@dataclass(frozen=True, slots=True)
class Installation:
    """The cluster that ``kind-config.yaml`` describes; ``programs`` make and remove it."""

    programs: Programs
    report: Report = print

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        name: str = yaml.safe_load(CONFIG.read_text())["name"]
        return name

    @property
    def image(self) -> str:
        """The image of Bireme, by the name that containerd and both engines have for it."""
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        repository = yaml.safe_load((CHART / "values.yaml").read_text())["operator"]["image"]
        return f"docker.io/library/{repository['repository']}:{version}"

    def up(self, node_image: str = "", archives: Sequence[Path] = ()) -> None:
        """Make the cluster, install Bireme, test it, add the fake nodes.

        ``node_image`` takes the place of the one in ``kind-config.yaml``. ``archives`` are images
        for its node; without them Bireme's is built by the container engine.

        Raises:
            ControlPlaneError: there is such a cluster, or a step failed, whose output it carries.
        """
        if self._exists():
            raise ControlPlaneError(f"there is a kind cluster {self.cluster}: run make kind-down")
        with contextlib.ExitStack() as stack:
            if not archives:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bireme-kind-"))
                archives = [self._build(Path(folder) / "bireme.tar")]
            chosen = [f"--image={node_image}"] if node_image else []
            with self._step("the cluster"):
                wait = f"--wait={READY_SECONDS}s"
                self._run("kind", "create", "cluster", f"--config={CONFIG}", *chosen, wait)
            with self._step("images on its node"):
                for archive in archives:
                    self._run("kind", "load", "image-archive", str(archive), self._named)
        with self._step("Bireme"):
            self._helm(
                *("install", "bireme", str(CHART), "--create-namespace", "--wait"),
                f"--values={CHART / 'values-kind.yaml'}",
                f"--timeout={READY_SECONDS}s",
            )
        with self._step("helm test"):
            self._helm("test", "bireme", f"--timeout={READY_SECONDS}s", "--logs")
        with self._step("fake nodes"):
            self._kubectl("apply", "-k", str(FAKE_NODES))
            wait = f"--timeout={READY_SECONDS}s"
            self._kubectl("-n", "kube-system", "rollout", "status", "deploy/kwok-controller", wait)
            fake = ("node", "--selector=nvidia.com/gpu.product")
            self._kubectl("wait", "--for=condition=Ready", *fake, wait)
        self.report(f"kubectl's context is {self._context} now; make kind-down removes it all")

    def down(self) -> None:
        """Remove the cluster, and the image that ``up`` built; fine when there is neither."""
        with self._step("removal"):
            self._run("kind", "delete", "cluster", self._named)
            if self._has_image():
                self._engine("image", "rm", self.image)

    def _has_image(self) -> bool:
        # Many versions of Docker list no image by a name with docker.io in front; by inspect and rm
        # both engines know it.
        try:
            self._engine("image", "inspect", self.image)
        except ControlPlaneError:
            return False
        return True

    def _exists(self) -> bool:
        return self.cluster in self._run("kind", "get", "clusters").split()

    def _build(self, archive: Path) -> Path:
        """Build Bireme's image; return an archive of it, which kind loads from either engine."""
        with self._step("the image of Bireme"):
            version = f"--build-arg=VERSION={self.image.rpartition(':')[2]}"
            named = ("--target=bireme", f"--tag={self.image}")
            self._engine("build", *named, version, str(REPOSITORY))
            self._engine("save", "--output", str(archive), self.image)
        return archive

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.report(f"{name} ...")
        began_seconds = time.monotonic()
        yield
        self.report(f"{name}: {time.monotonic() - began_seconds:.0f} s")

    @property
    def _named(self) -> str:
        return f"--name={self.cluster}"

    @property
    def _context(self) -> str:
        return f"kind-{self.cluster}"

    def _helm(self, *arguments: str) -> None:
        where = (f"--kube-context={self._context}", f"--namespace={NAMESPACE}")
        self._run("helm", *arguments, *where)

    def _kubectl(self, *arguments: str) -> None:
        self._run("kubectl", f"--context={self._context}", *arguments)

    def _engine(self, *arguments: str) -> str:
        return self._run(self.programs.engine, *arguments)

    def _run(self, *command: str) -> str:
        return output(command, timeout_seconds=LONG_SECONDS, environment=self.programs.environment)
