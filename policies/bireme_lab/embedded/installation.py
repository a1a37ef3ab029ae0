"""Bireme on an embedded cluster: operator, extender and board as programs, over HTTP."""

import asyncio
import contextlib
import json
import secrets
import signal
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec
import yaml

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.builtin.rbac import account_user
from bireme_lab.embedded.cluster import EmbeddedCluster, put
from bireme_lab.embedded.programs import InstalledProgram
from bireme_lab.embedded.scheduler.configuration import Configuration

_BOARD_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_LOOPBACK: Final = "127.0.0.1"
SCHEDULER_CONFIGURATION: Final = Path(__file__).with_name("scheduler-config.yaml")
CHART: Final = Path(__file__).with_name("chart.jsonl")
NAMESPACE: Final = "bireme-system"
_OUTLOOK: Final = "bireme-outlook"  # the Service in front of the leader
# By program, the account that the chart gives to it.
_ACCOUNTS: Final = {
    name: account_user(NAMESPACE, f"bireme-{name}") for name in ("operator", "scheduler")
}


@dataclass(eq=False)
class EmbeddedInstallation:
    """An embedded cluster with Bireme on it; ``async with`` runs it.

    Attributes:
        nodes: Node manifests.
        manifests: More manifests, applied before Bireme starts.
        environment: Settings of Bireme's programs.
        folder: The folder of kubeconfig and logs; None for a temporary one.
        commands: By module of a program, the module and arguments to run in its place.
    """

    nodes: Sequence[Object] = ()
    manifests: Sequence[Object] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    has_board: bool = False
    folder: Path | None = None
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cluster: EmbeddedCluster = field(init=False)
    kubeconfig: Path = field(init=False)
    programs: list[InstalledProgram] = field(default_factory=list)
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._stack.aclose()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        if self.folder is None:
            folder_name = stack.enter_context(tempfile.TemporaryDirectory(prefix="bireme-"))
            self.folder = Path(folder_name)
        self.folder.mkdir(parents=True, exist_ok=True)
        extender, metrics = free_ports(2)
        tokens = {name: secrets.token_hex(16) for name in _ACCOUNTS}
        self.cluster = EmbeddedCluster(
            _configuration(extender),
            _ACCOUNTS["scheduler"],
            {token: _ACCOUNTS[name] for name, token in tokens.items()},
        )
        furnish(self.cluster, [*chart(), *self.nodes, *self.manifests])
        await stack.enter_async_context(self.cluster)
        self.cluster.http.proxy.addresses[NAMESPACE, _OUTLOOK] = f"http://{_LOOPBACK}:{metrics}"
        self.kubeconfig = self._kubeconfig(self.folder / "kubeconfig.yaml")
        credentials = {
            name: {
                **self.environment,
                "KUBECONFIG": str(self._kubeconfig(self.folder / f"{name}.yaml", token)),
            }
            for name, token in tokens.items()
        }
        self.programs = [
            InstalledProgram(
                "the extender",
                self.commands.get("bireme_extender", ("bireme_extender",)),
                {
                    **credentials["scheduler"],
                    "BIREME_EXTENDER_ADDRESS": f"{_LOOPBACK}:{extender}",
                },
                self.folder / "extender.log",
                f"http://{_LOOPBACK}:{extender}/readyz",
            ),
            InstalledProgram(
                "the operator",
                self.commands.get("bireme_operator", ("bireme_operator",)),
                {
                    **credentials["operator"],
                    "BIREME_LEASE_NAMESPACE": NAMESPACE,
                    "BIREME_OUTLOOK": "true",
                    "BIREME_METRICS_ADDRESS": f"{_LOOPBACK}:{metrics}",
                },
                self.folder / "operator.log",
                f"http://{_LOOPBACK}:{metrics}/readyz",
            ),
        ]
        if self.has_board:
            command = ("bireme.cli", "ui", "--no-browser", f"--kubeconfig={self.kubeconfig}")
            self.programs.append(
                InstalledProgram("the board", command, self.environment, self.folder / "board.log")
            )
        for program in self.programs:
            await program.start()
            stack.push_async_callback(program.stop)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            for program in self.programs:
                await program.wait_ready(session)
        for program in self.programs:
            program.keep_running()

    def _kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write the kubeconfig of who has a token; without one, of the administrator."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(kubeconfig_of(self.cluster.http.url, token)))
        return path

    async def board_address(self) -> str:
        """Return the address that the board prints; empty if it does not start."""
        log = self.programs[-1].log
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BOARD_SECONDS):
                while True:
                    for line in log.read_text(errors="replace").splitlines():
                        if line.startswith("http://"):
                            return line
                    await asyncio.sleep(_POLL_SECONDS)
        return ""


def end_signal() -> asyncio.Event:
    """Return what is set when somebody ends this program, by Ctrl-C or SIGTERM."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end.set)
    return end


def chart() -> list[Object]:
    """Return what the chart installs: kinds, accounts, roles, admission policies, a Service."""
    return [msgspec.json.decode(line) for line in CHART.read_bytes().splitlines()]


def furnish(cluster: EmbeddedCluster, manifests: Iterable[Object]) -> None:
    """Create ``manifests`` as the administrator.

    Raises:
        ValueError: one is of a kind that the cluster does not serve.
    """
    for manifest in manifests:
        resource = cluster.api.resources.of_kind(manifest["apiVersion"], manifest["kind"])
        if resource is None:
            raise ValueError(
                f"{manifest['kind']} of {manifest['apiVersion']} is not served by the embedded "
                "cluster; leave it out"
            )
        namespace = manifest["metadata"].get("namespace", "default")
        place = f"{resource.prefix}/namespaces/{namespace}/{resource.plural}"
        put(cluster.api, place if resource.is_namespaced else resource.path, manifest)


def kubeconfig_of(server: str, token: str = "") -> Object:
    """Return a kubeconfig of who has a token; without one, of the administrator."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bireme-embedded",
        "clusters": [{"name": "bireme-embedded", "cluster": {"server": server}}],
        "users": [{"name": "administrator", "user": {"token": token} if token else {}}],
        "contexts": [
            {
                "name": "bireme-embedded",
                "context": {"cluster": "bireme-embedded", "user": "administrator"},
            }
        ],
    }


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind((_LOOPBACK, 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def _configuration(extender_port: int) -> Configuration:
    """Return the scheduler's configuration as it is shipped, with the extender on its port."""
    document = yaml.safe_load(SCHEDULER_CONFIGURATION.read_text())
    (extender,) = document["extenders"]
    extender["urlPrefix"] = f"http://{_LOOPBACK}:{extender_port}"
    document["leaderElection"]["resourceNamespace"] = NAMESPACE
    return Configuration.parse(document)
