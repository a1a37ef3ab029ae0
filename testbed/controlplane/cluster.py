"""A named Kubernetes cluster of local processes: real control plane, fake nodes, a real one too.

A cluster belongs to the program that started it: should that die without ``stop``, the next
``Cluster.start`` anywhere clears it away. ``detached`` ones stay until ``down``.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final, Self

import yaml

from testbed.controlplane.api import Api, Manifest
from testbed.controlplane.binaries import ControlPlane, cache_root, control_plane, output
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.kwokctl import HEALTH_PATHS, Arguments, RealNodeAccess, configuration
from testbed.controlplane.nodes import register, repelling
from testbed.controlplane.process import Component, Process, kill_from
from testbed.controlplane.realnode.node import RealNode
from testbed.controlplane.scheduling import scheduler_command, scheduler_environment
from testbed.controlplane.waiting import wait_until

NAME_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
START_TIMEOUT_SECONDS: Final = 180.0


def clusters_folder() -> Path:
    return cache_root() / "clusters"


# --- ownership: a file lock that the owning program holds ---------------------------------------
# The kernel drops the lock however the program ends, so an unlocked file marks an orphan: nothing
# to time out, no pid that another program may have taken over.

OWNER_FILE: Final = "owner.lock"

# Kept here and not in the Cluster object, which a program may drop and find again by name.
_claims: Final[dict[Path, IO[str]]] = {}


def claim(folder: Path) -> None:
    """Mark ``folder`` as owned by this program until it ends or calls ``release``."""
    unlocked = folder / f"{OWNER_FILE}.new"
    owner = unlocked.open("w")
    fcntl.flock(owner, fcntl.LOCK_EX)
    unlocked.rename(folder / OWNER_FILE)  # never visible without its lock
    _claims[folder] = owner


def release(folder: Path) -> None:
    if owner := _claims.pop(folder, None):
        owner.close()


def is_orphan(folder: Path) -> bool:
    """Return whether the owner of ``folder`` is gone; False for one that was never claimed."""
    try:
        with (folder / OWNER_FILE).open() as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


@dataclass(eq=False)
class Cluster:
    """A running cluster. Use ``Cluster.start`` (also in ``with``) or ``Cluster.find``."""

    name: str

    @classmethod
    def start(
        cls,
        name: str,
        *,
        detached: bool = False,
        real_node: bool = False,
        arguments: Arguments | None = None,
    ) -> Self:
        """Start a fresh cluster and return when pods can be created; build what is missing.

        ``arguments`` are more flags for its components.

        With ``real_node`` there is ``node``, and fake nodes repel pods that do not tolerate
        ``nodes.FAKE_TAINT``.

        Raises:
            ControlPlaneError: the name is bad or taken, or a component did not start.
        """
        cluster = cls(name)
        programs = control_plane()
        stop_orphans()  # they would keep their ports and their memory for good
        cluster._claim(detached)
        keys = cluster._home / "pki"
        try:
            real = RealNodeAccess(cluster.node.reserve(), keys) if real_node else None
            cluster._create(configuration(programs, real, arguments), programs)
            if real_node:
                cluster.node.join(cluster.api, keys)
        except BaseException:  # Ctrl-C as well: nothing may be left running
            cluster.stop()
            raise
        return cluster

    @classmethod
    def find(cls, name: str) -> Self:
        """Return the running cluster of that name, of any program."""
        cluster = cls(name)
        if not cluster._folder.is_dir():
            running = ", ".join(known_clusters()) or "none"
            raise ControlPlaneError(f"no cluster {name!r}: there is {running}")
        return cluster

    def stop(self) -> None:
        """End every process of the cluster and remove its folder; stopping twice is fine."""
        if api := self.__dict__.pop("api", None):
            api.close()
        if self._node_folder.exists():
            self.node.stop()
        kill_from(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)  # another program may clear it, too
        if self._folder.exists():
            raise ControlPlaneError(f"could not remove {self._folder}: check its permissions")
        release(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """Credentials of the cluster's administrator."""
        return self._home / "kubeconfig.yaml"

    @cached_property
    def api(self) -> Api:
        return Api(self.kubeconfig)

    @cached_property
    def node(self) -> RealNode:
        """The real node of a cluster that was started with one."""
        detached = not (self._folder / OWNER_FILE).exists()
        return RealNode(self.name, self._node_folder, detached=detached)

    def kubectl(
        self,
        *arguments: str,
        input: str = "",  # noqa: A002  # as subprocess.run calls it
        check: bool = True,
        timeout_seconds: float = 60.0,
    ) -> str:
        """Return the output of ``kubectl ARGUMENTS``; with ``check=False`` of errors, too."""
        # A cache of its own: the shared one is keyed by port and would remember another cluster.
        flags = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self._folder / 'kubectl'}"]
        command = [str(self.binary("kubectl")), *flags, *arguments]
        if check:
            return output(command, timeout_seconds=timeout_seconds, given=input)
        done = subprocess.run(
            command,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        return done.stdout + done.stderr  # warnings after what was asked for

    def binary(self, name: str) -> Path:
        """Return a program of Kubernetes of the version this cluster runs, such as ``kubectl``."""
        return Path(self._option("kubectlBinary")).parent / name

    def component(self, name: str) -> Component:
        """Return ``etcd``, ``kube-apiserver``, ``kube-controller-manager``, ... of this cluster."""
        for saved in self._saved["components"]:
            if saved["name"] == name:
                scheme, port, path = HEALTH_PATHS[name]
                url = f"{scheme}://127.0.0.1:{self._option(port)}{path}"
                command = [saved["binary"], *saved.get("args", [])]
                return Component(name, command, self._home, url)
        known = ", ".join(saved["name"] for saved in self._saved["components"])
        raise ControlPlaneError(f"cluster {self.name} has no component {name!r}: it has {known}")

    def second_scheduler(self, config: str, folder: Path, port: int) -> Process:
        """Return another kube-scheduler of a configuration, not yet started.

        Its log is in ``folder``, and its health at ``port``.
        """
        path = folder / "scheduler-config.yaml"
        path.write_text(config)
        return Process(
            "kube-scheduler",
            scheduler_command(self.binary("kube-scheduler"), path, port),
            log_path=folder / "kube-scheduler.log",
            ready_url=f"https://127.0.0.1:{port}/readyz",
            env=scheduler_environment(),
        )

    def create_namespace(self, name: str) -> str:
        """Create a namespace and wait for its service account, without which pods are refused."""
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        self._await_service_account(name)
        return name

    def install(self, *manifests: Path) -> None:
        """Apply files or folders of CRDs and return when objects of them are taken."""
        files = [f"--filename={path}" for path in manifests]
        self.kubectl("apply", "--server-side", *files)
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", *files)

    def add_nodes(self, nodes: Sequence[Manifest]) -> None:
        """Create Nodes (of ``fake_nodes``) and return when pods can be bound to all."""
        beside_real = self._node_folder.exists()
        made = [repelling(node) for node in nodes] if beside_real else nodes
        register(self.api, made)

    def expire_watches(self) -> int:
        """Make every resourceVersion handed out so far too old to watch from (410 Gone).

        Compacts etcd while the API server is stopped, so that its watch cache begins after it.
        """
        server = self.component("kube-apiserver")
        server.stop()
        revision = int(self.call_etcd("range", {"key": "AA=="})["header"]["revision"])
        self.call_etcd("compaction", {"revision": str(revision), "physical": True})
        server.start()
        return revision

    def backup(self, folder: Path) -> None:
        """Copy all of etcd's data to ``folder``; the API server and etcd stand still meanwhile."""
        with self._without_etcd() as data:
            shutil.copytree(data, folder)

    def restore(self, folder: Path) -> None:
        """Bring a backup's moment back, as an administrator would: with its old revisions.

        The control plane's other programs are started again, as Kubernetes asks for; kwok is one.
        """
        clients = ("kube-controller-manager", "kube-scheduler", "kwok-controller")
        for name in clients:
            self.component(name).stop()
        with self._without_etcd() as data:
            shutil.rmtree(data)
            shutil.copytree(folder, data)
        # kwok leaves nodes alone whose Lease the kwok before it holds, for more than an hour.
        self.api.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        for name in clients:
            self.component(name).start()

    @contextmanager
    def _without_etcd(self) -> Iterator[Path]:
        """Stop the API server and etcd within the block, which is given etcd's folder."""
        server, etcd = self.component("kube-apiserver"), self.component("etcd")
        server.stop()
        etcd.stop()
        option = "--data-dir="
        (data,) = (Path(w.removeprefix(option)) for w in etcd.command if w.startswith(option))
        yield data
        etcd.start()
        server.start()

    def call_etcd(self, verb: str, body: dict[str, Any], service: str = "kv") -> Any:
        """Call etcd, past the API server, by its JSON gateway on loopback."""
        url = f"http://127.0.0.1:{self._option('etcdPort')}/v3/{service}/{verb}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
            return json.load(answer)

    @property
    def _folder(self) -> Path:
        return clusters_folder() / self.name

    @property
    def _home(self) -> Path:
        return self._folder / "clusters" / self.name  # kwokctl's layout below KWOK_WORKDIR

    @property
    def _node_folder(self) -> Path:
        return self._folder / "node"

    @cached_property
    def _saved(self) -> dict[str, Any]:
        documents = yaml.safe_load_all((self._home / "kwok.yaml").read_text())
        found: dict[str, Any] = next(d for d in documents if d["kind"] == "KwokctlConfiguration")
        return found

    def _option(self, name: str) -> str:
        return str(self._saved["options"][name])

    def _claim(self, detached: bool) -> None:
        """Make the folder, with a lock in it that this program holds while it lives."""
        if NAME_PATTERN.fullmatch(self.name) is None:
            raise ControlPlaneError(
                f"cluster name {self.name!r}: use 1-40 lower-case letters, digits and inner dashes"
            )
        clusters_folder().mkdir(parents=True, exist_ok=True)
        try:
            self._folder.mkdir()
        except FileExistsError:
            raise ControlPlaneError(
                f"cluster {self.name!r} exists: python -m testbed.controlplane down {self.name}"
            ) from None
        if not detached:
            claim(self._folder)

    def _create(self, config: str, programs: ControlPlane) -> None:
        path = self._folder / "kwokctl.yaml"
        path.write_text(config)
        # kwokctl takes every option from the environment, too, and prefers it.
        env = {key: value for key, value in os.environ.items() if not key.startswith("KWOK_")}
        env |= {"KWOK_WORKDIR": str(self._folder), "KWOK_KUBE_VERSION": programs.version}
        command = [str(programs.path("kwokctl")), "create", "cluster", f"--name={self.name}"]
        command += [f"--config={path}", f"--kubeconfig={self._folder / 'merged-kubeconfig.yaml'}"]
        output(command, timeout_seconds=START_TIMEOUT_SECONDS, environment=env)
        for component in (self.component(saved["name"]) for saved in self._saved["components"]):
            if component.pid is None:  # it waits 20 s for an API server, which may take longer
                component.start()
            component.wait_healthy()
        self._await_service_account("default")

    def _await_service_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(lambda: self.api.request("GET", path).status == 200, 60, path)


def known_clusters() -> list[str]:
    folder = clusters_folder()
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def stop_orphans() -> list[str]:
    """Stop clusters whose program died without stopping them; return their names."""
    orphans = [name for name in known_clusters() if is_orphan(clusters_folder() / name)]
    for name in orphans:
        Cluster(name).stop()
    return orphans
