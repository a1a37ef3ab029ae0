"""A registry on the loopback of a node's sandbox, from which nothing leads out of this machine.

Who publishes runs in the same sandbox, so that an image has one address for it and for the node.
"""

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import HELM, RELEASE, build
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.realnode.sandbox import Sandbox
from testbed.controlplane.waiting import wait_until
from tools.images.archives import Archive
from tools.release.errors import ReleaseError
from tools.release.signing import KINDS

ADDRESS: Final = "127.0.0.1:5000"
TEAM: Final = f"{ADDRESS}/team"
"""Put before every repository."""
CHART: Final = f"{TEAM}/charts/bireme"
_START_SECONDS: Final = 30.0
_TRANSFER_SECONDS: Final = 600.0


class Registry:
    """The registry in ``sandbox``; it goes with that. ``folder`` holds its blobs and caches."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._crane_program = build(RELEASE) / "crane"

    def start(self) -> None:
        blobs = self._folder / "blobs"
        blobs.mkdir(parents=True)
        serve = ("registry", "serve", f"--address={ADDRESS}", f"--disk={blobs}")
        self._sandbox.spawn("registry", [str(self._crane_program), *serve], "", os.environ["PATH"])

        def answers() -> bool:
            try:
                self.crane("catalog", ADDRESS)
            except ControlPlaneError:
                return False
            return True

        wait_until(answers, _START_SECONDS, "the registry")

    def run(self, *command: str) -> str:
        """Run a command where the registry is reached, to its end; return what it printed."""
        return self._sandbox.run(*command, timeout_seconds=_TRANSFER_SECONDS)

    def crane(self, *arguments: str) -> str:
        return self.run(
            "env", f"DOCKER_CONFIG={self._folder}", str(self._crane_program), *arguments
        )

    def helm(self, *arguments: str) -> str:
        """Run helm with caches of its own; of two streams that it prints to, return both."""
        homes = [f"HELM_{kind}_HOME={self._folder}" for kind in ("CACHE", "CONFIG", "DATA")]
        command = ["env", f"HOME={self._folder}", *homes, str(build(HELM) / "helm"), *arguments]
        return self.run("sh", "-c", '"$@" 2>&1', "helm", *command)

    def push(self, image: Archive, repository: str, version: str) -> str:
        """Push an image from its archive; return its reference by digest.

        Raises:
            ReleaseError: the registry has it by another digest than the archive.
        """
        layout = self._folder / "layout"
        with tarfile.open(image.path) as archive:
            archive.extractall(layout, filter="data")
        (manifest,) = json.loads((layout / "index.json").read_text())["manifests"]
        tagged = f"{TEAM}/{repository}:{version}"
        self.crane("push", str(layout), tagged)
        shutil.rmtree(layout)
        digest = self.digest(tagged)
        if digest != manifest["digest"]:
            raise ReleaseError(
                f"{tagged} has digest {digest}, and its archive {manifest['digest']}"
            )
        return f"{TEAM}/{repository}@{digest}"

    def push_chart(self, package: Path) -> str:
        """Push a packaged chart by its version; return its reference by digest."""
        said = self.helm("push", str(package), f"oci://{CHART.rpartition('/')[0]}", "--plain-http")
        version = package.stem.removeprefix("bireme-")
        digest = self.digest(f"{CHART}:{version}")
        if digest not in said:
            raise ReleaseError(f"helm pushed another chart than {CHART}:{version} is: {said}")
        return f"{CHART}@{digest}"

    def pull_chart(self, reference: str, folder: Path) -> Path:
        """Pull a chart by its digest into ``folder``; return the package."""
        folder.mkdir()
        self.helm("pull", f"oci://{reference}", "--plain-http", f"--destination={folder}")
        (package,) = folder.iterdir()
        return package

    def digest(self, reference: str) -> str:
        return self.crane("digest", reference).strip()

    def tampered(self, reference: str) -> str:
        """Push the image with a label more, under the signatures of ``reference``; return its own.

        It is what somebody can do who may write to the registry and has no key.
        """
        repository, _, digest = reference.partition("@")
        tag = f"{repository}:tampered"
        self.crane("mutate", reference, "--label=tampered=true", f"--tag={tag}")
        return self.borrow_signatures(digest, f"{repository}@{self.digest(tag)}")

    def borrow_signatures(self, digest: str, reference: str) -> str:
        """Lay what is signed of ``digest`` beside another image of its repository; return that."""
        repository, _, other = reference.partition("@")
        if other == digest:
            raise ReleaseError(f"{reference} is what was signed: nothing was changed")
        tags = self.crane("ls", repository).split()
        for kind in KINDS:
            signed = f"{digest.replace(':', '-')}{kind}"
            if signed in tags:
                self.crane(
                    "copy",
                    f"{repository}:{signed}",
                    f"{repository}:{other.replace(':', '-')}{kind}",
                )
        return reference
