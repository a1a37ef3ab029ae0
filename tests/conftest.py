"""Setup of every tier: hypothesis' settings, which tests need a cluster, and their order.

Property tests judge what is computed; how long a busy machine takes for it is no finding. In the
profile ``test`` they draw the same examples in every run, so a test fails for the change alone.
"""

import asyncio
import gc
import secrets
from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from xdist.scheduler.load import LoadScheduling
from xdist.workermanage import WorkerController

from testbed.examples import TEST_EXAMPLES, VERIFY_EXAMPLES

for profile, examples in (("test", TEST_EXAMPLES), ("verify", VERIFY_EXAMPLES)):
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        profile,
        max_examples=examples,
        derandomize=profile == "test",
        deadline=None,
        suppress_health_check=slow,
    )
settings.load_profile("test")

CLUSTER_FOLDERS = ("tests/cluster/", "tests/node/", "tests/kind/")
RUN_AGAIN = ("tests/cluster/", "tests/node/", "tests/integration/", "tests/performance/")
NODE_FOLDER = "tests/node/"
WAITING_FOLDER = "tests/integration/"
PREFERRED_TIERS = {"gw0": "waiting", "gw3": "computing"}
"""By worker; the others prefer ``cluster``."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a random run, before hypothesis reads it; fix everything else drawn."""
    if config.getoption("--hypothesis-profile") == "verify":
        if config.getoption("--hypothesis-seed") is None:
            config.option.hypothesis_seed = str(secrets.randbits(32))
    else:
        # Hypothesis also draws constants of all modules that are imported by then, so a constant
        # anywhere would change the examples of every test.
        providers._get_local_constants = Constants


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the seed of a random run, which draws its examples again."""
    if (seed := config.getoption("--hypothesis-seed")) is not None:
        terminalreporter.write_line(f"property tests drew by --hypothesis-seed={seed}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a cluster, and run what waits for real programs a second time if it fails.

    Four workers share two cores, so a program may be late; the summary names each such test as
    RERUN. What only computes fails at once, and so does a broken promise.
    """
    for item in items:
        if item.nodeid.startswith(RUN_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=["BrokenPromisesError"]))
        if item.nodeid.startswith(CLUSTER_FOLDERS):
            item.add_marker(pytest.mark.cluster)


def pytest_collection_finish() -> None:
    """Leave modules and tests to no garbage collection: each looked at 700,000 objects again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take an event loop from the thread that Playwright left there as the running one.

    Its synchronous interface runs a loop beside the tests, and where a test of a page was run a
    second time, it stayed: ``asyncio.run`` refused in every test that followed.
    """
    if "browser" not in getattr(item, "fixturenames", ()):
        asyncio._set_running_loop(None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScheduling:
    """Let :class:`TierScheduling` distribute the tests."""
    return TierScheduling(config, log)


class TierScheduling(LoadScheduling):  # type: ignore[misc]  # xdist has no types
    """Distribution of tests that keeps two cores busy.

    Tests with a cluster and those of the integration tier mostly wait, and the others compute. So
    the first worker takes the integration tier, the fourth what computes, and every other worker
    the tests with a cluster; then whatever is left. A worker stays in its file, whose fixtures it
    has, before it begins one that no other worker is in, and in its folder, whose libraries it has.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._file_of: dict[WorkerController, str] = {}
        self._by_file: dict[str, deque[int]] = {}
        self._grouped = 0
        """Number of tests in ``_by_file``, which are those of ``pending``."""

    def _send_tests(self, node: WorkerController, num: int) -> None:
        chosen = [self._take(node) for _ in range(min(num, len(self.pending)))]
        if chosen:
            self.node2pending[node].extend(chosen)
            node.send_runtest_some(chosen)

    def _take(self, node: WorkerController) -> int:
        if self._grouped != len(self.pending):  # at first, and when a worker has died
            self._group()
        file = self._file_of.get(node, "")
        if file not in self._by_file:
            file = self._file_of[node] = self._next_file(node, file)
        index = self._by_file[file].popleft()
        if not self._by_file[file]:
            del self._by_file[file]
        self._grouped -= 1
        self.pending.remove(index)
        return index

    def _next_file(self, node: WorkerController, last: str) -> str:
        taken = {file for other, file in self._file_of.items() if other is not node}
        folders = {_folder(file) for file in taken}
        preferred = PREFERRED_TIERS.get(node.gateway.id, "cluster")
        # The node tier comes first: it is long, and one worker alone builds its cluster.
        return min(
            self._by_file,
            key=lambda file: (
                _tier(file) != preferred,
                file in taken,
                file != NODE_FOLDER,
                _folder(file) != _folder(last),
                _folder(file) in folders,
            ),
        )

    def _group(self) -> None:
        self._by_file.clear()
        for index in self.pending:
            self._by_file.setdefault(self._file(index), deque()).append(index)
        self._grouped = len(self.pending)

    def _file(self, index: int) -> str:
        assert self.collection is not None
        file = self.collection[index].partition("::")[0]
        return NODE_FOLDER if file.startswith(NODE_FOLDER) else file


def _folder(file: str) -> str:
    """Return the two upper folders of a tier, such as ``unit/training``."""
    return "/".join(file.split("/")[1:3])


def _tier(file: str) -> str:
    if file.startswith(CLUSTER_FOLDERS):
        return "cluster"
    return "waiting" if file.startswith(WAITING_FOLDER) else "computing"
