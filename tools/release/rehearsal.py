"""A release from its sources to a running installation, on this machine: docs/releases.md.

Each step raises ReleaseError or ControlPlaneError where a release would not be what it claims.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane.binaries import HELM, RELEASE, build, output
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.realnode.obstacle import obstacle as node_obstacle
from tools.images import archives
from tools.images.archives import Archive
from tools.release import bills, chart, distributions, notes, readiness, versions
from tools.release.distributions import Environment
from tools.release.errors import ReleaseError
from tools.release.registry import CHART, TEAM, Registry
from tools.release.signing import Signer, refused

NAMESPACE: Final = "bireme-system"
_INSTALL_SECONDS: Final = 240.0
_JOB_SECONDS: Final = 120.0


def obstacle() -> str | None:
    """Return why this machine cannot rehearse a release; None when it can."""
    return node_obstacle() or archives.obstacle()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One rehearsal in the empty ``folder``; ``say`` gets a line per step."""

    folder: Path
    say: Callable[[str], None]
    version: str = field(default_factory=versions.current)

    def run(self) -> None:
        """Do all of it; return when it has held."""
        if reason := obstacle():
            raise ReleaseError(f"no rehearsal here: {reason}")
        began_seconds = time.monotonic()
        for what in readiness.missing():
            self.say(f"by hand before a tag: {what}")
        with self._step("release notes"):
            self._notes()
        with self._step("distributions installed into empty environments"):
            installed = self._distributions()
        images = archives.build(self.say)
        name = f"release-{os.getpid()}-{secrets.token_hex(2)}"
        with Cluster.start(name, real_node=True) as cluster:
            registry = Registry(cluster.node.sandbox, self.folder / "registry")
            registry.start()
            signer = Signer(registry.run, build(RELEASE) / "cosign", self.folder / "keys")
            signer.make_keys()
            with self._step("wheels signed, with bills of materials"):
                self._sign_wheels(installed, signer)
            with self._step("images pushed, signed, with bills of materials"):
                own = list(images.own)
                pushed = {image.path.stem: self._publish(image, registry, signer) for image in own}
                scheduler = registry.push(images.scheduler, "kube-scheduler", self.version)
            with self._step("chart packaged with digests, pushed, signed and pulled"):
                package = self._chart(pushed, registry, signer)
            with self._step("the pulled chart installed on a real node"):
                self._install(cluster, package, pushed, scheduler)
        took_seconds = time.monotonic() - began_seconds
        self.say(f"the rehearsal of release {self.version} held, in {took_seconds:.0f} s")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began_seconds = time.monotonic()
        yield
        self.say(f"{what}: {time.monotonic() - began_seconds:.0f} s")

    def _notes(self) -> None:
        changelog = versions.ROOT / "CHANGELOG.md"
        dated = f"\n## {self.version} - " in changelog.read_text(encoding="utf-8")
        section = self.version if dated else notes.UNRELEASED
        text = notes.notes(section, changelog)
        self.say(f"notes from section {section}: {len(text.splitlines())} lines")

    def _distributions(self) -> dict[Path, Environment]:
        """Build the wheels; return each with the environment that it was tried in."""
        bireme, lab, report = distributions.build(self.folder / "dist")
        environment = Environment(self.folder / "environment")
        environment.install(bireme, distributions.PINS)
        if strangers := environment.strangers():
            raise ReleaseError(f"the environment of the wheel imports from {strangers}")
        for program in ("bireme", "kubectl-bireme"):
            environment.run(program, "--help")
        environment.run("bireme", "policies")  # reads files that come with the package
        for program in ("bireme-operator", "bireme-extender"):
            environment.start_without_cluster(program)
        research = Environment(self.folder / "research")
        research.install(bireme, distributions.PINS)
        research.install(lab)
        for command in (("simulate", "--help"), ("policies", "show", "das")):
            research.run("bireme", *command)
        alone = Environment(self.folder / "training")
        alone.install(report)
        others = [one.name for one in alone.installed() if one.name != "bireme-report"]
        if others or alone.strangers():
            raise ReleaseError(f"bireme-report does not stand alone: {others} came with it")
        script = "from bireme_report import finish, report; report(step=1, total_steps=2); finish()"
        alone.run("python", "-c", script)
        return {bireme: environment, lab: research, report: alone}

    def _sign_wheels(self, installed: dict[Path, Environment], signer: Signer) -> None:
        for wheel, environment in installed.items():
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            bill = wheel.with_name(f"{wheel.name}.cdx.json")
            bill.write_text(bills.of_wheel(wheel, digest, environment))
            signer.sign_file(wheel)
            signer.attest_file(wheel, bill)
            signer.verify_file(wheel)
            if signer.attested_file(wheel) != json.loads(bill.read_text()):
                raise ReleaseError(f"the bill of {wheel.name} is another than was attested")
            genuine = wheel.read_bytes()
            wheel.write_bytes(genuine[:-1] + bytes([genuine[-1] ^ 1]))
            for check in (signer.verify_file, signer.attested_file):
                self._refused(f"{wheel.name} with another last bit", partial(check, wheel))
            wheel.write_bytes(genuine)

    def _publish(self, image: Archive, registry: Registry, signer: Signer) -> str:
        """Push, sign and attest an image; return its reference by digest, which alone verifies."""
        reference = registry.push(image, image.path.stem, self.version)
        self._refused(f"{reference} before it was signed", lambda: signer.verify(reference))
        signer.sign(reference)
        signer.attest(reference, image.materials)
        self._check_digest(signer.verify(reference), reference)
        if signer.attested(reference) != json.loads(image.materials.read_text()):
            raise ReleaseError(f"the bill of materials of {reference} is another than was attested")
        tampered = registry.tampered(reference)
        self._refused(f"{tampered}, tampered with", lambda: signer.verify(tampered))
        self._refused(f"the bill of {tampered}", lambda: signer.attested(tampered))
        stranger = Signer(signer.run, signer.program, self.folder / f"stranger-{image.path.stem}")
        stranger.make_keys()
        self._refused(f"{reference} by another's key", lambda: stranger.verify(reference))
        return reference

    def _chart(self, pushed: dict[str, str], registry: Registry, signer: Signer) -> Path:
        """Publish the chart; return the package that was pulled back by its signed digest."""
        digests = {name: reference.partition("@")[2] for name, reference in pushed.items()}
        source = self.folder / "chart" / "bireme"
        chart.write(versions.ROOT / "charts" / "bireme", source, TEAM, digests)
        reference = registry.push_chart(self._packaged(source, "packed", registry))
        signer.sign(reference)
        tagged = f"{CHART}:{self.version}"
        self._check_digest(signer.verify(tagged), reference)
        # Who may write to the registry moves the tag to a chart with other images.
        values = source / "values.yaml"
        values.write_text(
            values.read_text().replace("pullPolicy: IfNotPresent", "pullPolicy: Always")
        )
        moved = registry.push_chart(self._packaged(source, "tampered", registry))
        registry.borrow_signatures(reference.partition("@")[2], moved)
        self._refused(f"{tagged}, moved to another chart", lambda: signer.verify(tagged))
        self._check_digest(signer.verify(reference), reference)
        return registry.pull_chart(reference, self.folder / "pulled")

    def _packaged(self, source: Path, name: str, registry: Registry) -> Path:
        registry.helm("package", str(source), f"--destination={self.folder / name}")
        return self.folder / name / f"bireme-{self.version}.tgz"

    def _install(
        self, cluster: Cluster, package: Path, pushed: dict[str, str], scheduler: str
    ) -> None:
        repository, _, digest = scheduler.partition("@")
        registry, _, name = repository.rpartition("/")
        own = {"registry": registry, "repository": name, "digest": digest}
        _helm(
            cluster,
            *("install", "bireme", str(package), "--create-namespace", "--wait"),
            *(f"--set=scheduler.image.{key}={value}" for key, value in own.items()),
        )
        wanted = {pushed["bireme"], scheduler}
        if (running := _running(cluster)) != wanted:
            raise ReleaseError(f"pods run {sorted(running)}, and the release is {sorted(wanted)}")
        _helm(cluster, "test", "bireme")
        in_namespace = f"--namespace={NAMESPACE}"
        cluster.kubectl("create", "job", "forecast", "--from=cronjob/bireme-forecast", in_namespace)
        _wait(cluster, "job/forecast", "condition=Complete", in_namespace)
        if pushed["bireme-forecast"] not in _running(cluster):
            raise ReleaseError(f"the nightly forecast did not run {pushed['bireme-forecast']}")
        cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump(_gang(pushed["bireme"])))
        _wait(cluster, "trainingjob/rehearsal", "jsonpath={.status.phase}=Succeeded")
        _helm(cluster, "uninstall", "bireme", "--wait")

    def _refused(self, what: str, check: Callable[[], object]) -> None:
        reason = refused(what, check)
        self.say(f"refused, as it must be: {what.replace(TEAM + '/', '')}: {reason[:160]}")

    def _check_digest(self, digest: str, reference: str) -> None:
        if not reference.endswith(f"@{digest}"):
            raise ReleaseError(f"{digest} is signed where {reference} should be")


def _helm(cluster: Cluster, *arguments: str) -> str:
    where = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    waiting = f"--timeout={_INSTALL_SECONDS:.0f}s"
    command = [str(build(HELM) / "helm"), *arguments, *where, waiting]
    return output(command, timeout_seconds=_INSTALL_SECONDS + 60)


def _running(cluster: Cluster) -> set[str]:
    """Return the images of the release's pods, as the node pulled them: by digest."""
    listed = cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=json")
    pods = json.loads(listed)["items"]
    return {
        status["imageID"] for pod in pods for status in pod["status"].get("containerStatuses", [])
    }


def _wait(cluster: Cluster, what: str, condition: str, *where: str) -> None:
    limit = f"--timeout={_JOB_SECONDS:.0f}s"
    try:
        cluster.kubectl(
            *("wait", what, f"--for={condition}", limit, *where), timeout_seconds=_JOB_SECONDS + 30
        )
    except ControlPlaneError as error:
        shown = cluster.kubectl("get", what, "--output=yaml", *where, check=False)
        raise ReleaseError(f"{what} does not come to {condition}: {error}\n{shown}") from error


def _gang(image: str) -> dict[str, Any]:
    """Return a TrainingJob of two real pods that end well."""
    container = {
        "name": "train",
        "image": image,
        "command": ["python", "-c", "print('done')"],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
    }
    task = {
        "name": "worker",
        "role": "worker",
        "replicas": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {
        "apiVersion": "bireme.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "rehearsal", "namespace": "default"},
        "spec": {"tasks": [task]},
    }
