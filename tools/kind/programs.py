"""What a kind cluster with Bireme is made with: a container engine, kind, helm and kubectl."""

import os
import shutil
from dataclasses import dataclass
from typing import Final

from testbed.controlplane.binaries import module_version, output
from testbed.controlplane.errors import ControlPlaneError

PROVIDER_VARIABLE: Final = "KIND_EXPERIMENTAL_PROVIDER"
ENGINES: Final = ("docker", "podman")
ANSWER_TIMEOUT_SECONDS: Final = 30.0
_KIND: Final = module_version("kind", "sigs.k8s.io/kind")
_REMEDIES: Final = {
    "kind": f"`go install sigs.k8s.io/kind@{_KIND}`, or https://kind.sigs.k8s.io/docs/user/quick-start",
    "helm": "https://helm.sh/docs/intro/install",
    "kubectl": "https://kubernetes.io/docs/tasks/tools",
}


@dataclass(frozen=True, slots=True)
class Programs:
    """``engine`` is docker or podman; the others are on PATH."""

    engine: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of this process, in which kind uses ``engine``."""
        return {**os.environ, PROVIDER_VARIABLE: self.engine}


def find(*needed: str) -> Programs:
    """Return the first that :func:`find_all` does."""
    return find_all(*needed)[0]


def find_all(*needed: str) -> list[Programs]:
    """Return the programs with each engine that answers; ``needed`` are those beside the engine.

    An engine that ``KIND_EXPERIMENTAL_PROVIDER`` names is the only one.

    Raises:
        ControlPlaneError: some are missing; names all of them, and what to do about each.
    """
    wanted = os.environ.get(PROVIDER_VARIABLE, "")
    if wanted and wanted not in ENGINES:
        raise ControlPlaneError(f"{PROVIDER_VARIABLE}={wanted}: use {' or '.join(ENGINES)}")
    obstacles = {name: _obstacle(name) for name in ((wanted,) if wanted else ENGINES)}
    engines = [name for name, reason in obstacles.items() if not reason]
    problems = [] if engines else list(obstacles.values())
    problems += [
        f"{name} is not on PATH: install it ({_REMEDIES[name]})"
        for name in needed
        if not shutil.which(name)
    ]
    if problems:
        raise ControlPlaneError("\n  ".join(["a kind cluster cannot be made here:", *problems]))
    return [Programs(engine) for engine in engines]


def _obstacle(engine: str) -> str:
    """Return why a container engine cannot be used; empty when it can."""
    if not shutil.which(engine):
        return f"{engine} is not on PATH: install docker or podman, one of them is enough"
    try:
        output([engine, "info"], timeout_seconds=ANSWER_TIMEOUT_SECONDS)
    except ControlPlaneError as error:
        said = str(error).splitlines()[-1].strip()
        return f"{engine} does not answer: start it, or install the other engine ({said})"
    return ""
