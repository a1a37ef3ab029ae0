"""Bireme itself as local processes against a cluster: extender, kube-scheduler and operators.

Each is a ``Process`` that a test may kill, pause and start again on the same port. One named in
``kubeconfigs`` reaches the API server through that file: fault tests put a proxy there.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import yaml

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.process import Process, free_ports
from testbed.controlplane.scheduling import render_scheduler_config
from testbed.internals import command

_ROOT: Final = Path(__file__).parents[2]
SCHEDULER_CONFIG: Final = _ROOT / "manifests" / "scheduler-config.yaml"
RESTART_SECONDS: Final = 0.5  # between two looks of a Keeper


class BiremeStack:
    """Extender, the second kube-scheduler and any number of operators, logging to ``workdir``.

    ``env`` holds BIREME_* settings for the Python programs, ``internals`` other values of their
    constants (:mod:`testbed.internals`). ``kubeconfigs`` maps process names
    (``extender``, ``kube-scheduler``, ``operator-a``, ...) to a file to use instead of
    ``cluster.kubeconfig``. ``scheduler_config`` replaces the one in the manifests.
    """

    def __init__(
        self,
        cluster: Cluster,
        workdir: Path,
        env: Mapping[str, str] | None = None,
        kubeconfigs: Mapping[str, Path] | None = None,
        scheduler_config: Mapping[str, Any] | None = None,
        internals: Mapping[str, float] | None = None,
    ) -> None:
        self.cluster = cluster
        self.workdir = workdir
        self.env = dict(env or {})
        self._internals = dict(internals or {})
        self.kubeconfigs = dict(kubeconfigs or {})
        self._scheduler_config = scheduler_config or yaml.safe_load(SCHEDULER_CONFIG.read_text())
        workdir.mkdir(parents=True, exist_ok=True)
        self.extender_port, self.scheduler_port = free_ports(2)
        self.extender = self._python("extender", "BIREME_EXTENDER_ADDRESS", self.extender_port)
        self.scheduler = self._kube_scheduler()
        self._operators: dict[str, Process] = {}

    def operator(
        self,
        name: str = "a",
        env: Mapping[str, str] | None = None,
        internals: Mapping[str, float] | None = None,
    ) -> Process:
        """Return the operator of that name, made (not started) when first asked for.

        ``env`` and ``internals`` are added to the stack's own for this operator: ``env`` for good,
        ``internals`` until the next call that names some. The port of the returned process has its
        metrics and health.
        """
        if name not in self._operators:
            (port,) = free_ports(1)
            operator = self._python(f"operator-{name}", "BIREME_METRICS_ADDRESS", port)
            self._operators[name] = operator
        operator = self._operators[name]
        operator.env.update(env or {})
        if internals is not None:
            operator.command[:] = command("bireme_operator", {**self._internals, **internals})
        return operator

    @property
    def processes(self) -> list[Process]:
        return [self.extender, self.scheduler, *self._operators.values()]

    def start(self, timeout_seconds: float = 60.0) -> Self:
        """Start what does not run (at least operator ``a``) and return when all are ready."""
        self.operator()
        # All before the first is awaited: their starts overlap.
        for process in self.processes:
            if not process.running:
                process.start()
        for process in self.processes:
            process.wait_ready(timeout_seconds)
        return self

    def log_tails(self) -> str:
        return "\n".join(process.log_tail() for process in self.processes)

    def stop(self) -> None:
        """Terminate every running program of the stack, operators first."""
        for process in reversed(self.processes):
            process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _python(self, name: str, address_setting: str, port: int) -> Process:
        kubeconfig = self.kubeconfigs.get(name, self.cluster.kubeconfig)
        own = {"KUBECONFIG": str(kubeconfig), address_setting: f"127.0.0.1:{port}"}
        return Process(
            name,
            command(f"bireme_{name.partition('-')[0]}", self._internals),
            log_path=self.workdir / f"{name}.log",
            ready_url=f"http://127.0.0.1:{port}/readyz",
            env={**self.env, **own},
        )

    def _kube_scheduler(self) -> Process:
        kubeconfig = self.kubeconfigs.get("kube-scheduler", self.cluster.kubeconfig)
        config = render_scheduler_config(self._scheduler_config, kubeconfig, self.extender_port)
        return self.cluster.second_scheduler(config, self.workdir, self.scheduler_port)


class Keeper:
    """Within its ``with`` block, starts every process that ends again, as a kubelet would."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = list(processes)
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @contextmanager
    def leaves_alone(self, process: Process) -> Iterator[None]:
        """Let the caller alone start and stop ``process`` within the block; afterwards it runs."""
        with self._lock:
            self._processes.remove(process)
        try:
            yield
        finally:
            with self._lock:
                self._processes.append(process)
                if not process.running:
                    process.start()

    def _keep(self) -> None:
        while not self._end.wait(RESTART_SECONDS):
            with self._lock:
                for process in self._processes:
                    if not process.running:
                        process.start()
