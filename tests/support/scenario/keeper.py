"""What a kubelet does for the programs of a stack: one that has ended is started again."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

from tests.support.scenario.waiting import eventually
from tools.controlplane.process import Process

PAUSE_SECONDS: Final = 0.5


class Keeper:
    """Within its ``with`` block, every one of ``processes`` that ends is started again."""

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
        """Within the block the test itself decides whether ``process`` runs; then it does."""
        with self._lock:
            self._processes.remove(process)
        try:
            yield
        finally:
            with self._lock:
                self._processes.append(process)
                if not process.running:
                    process.start()

    def await_running(self, process: Process) -> None:
        """Returns when ``process`` runs, ready or not."""
        eventually(lambda: process.running, explain=process.log_tail)

    def _keep(self) -> None:
        while not self._end.wait(PAUSE_SECONDS):
            with self._lock:
                for process in self._processes:
                    if not process.running:
                        process.start()
