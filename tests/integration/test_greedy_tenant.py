"""A tenant who creates all that the API server takes: the operator stays small and hears others.

``BIREME_GREEDY_JOBS=20000:100`` sets the numbers of small jobs and of jobs of the largest size,
``BIREME_GREEDY_OTHERS=12`` that of another tenant's jobs that follow; ``-s`` shows their times.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Change
from testbed.greedy_tenant import TENANT, largest_jobs, small_jobs
from testbed.operator_term.term import JOBS, furnish, status, submit, until
from testbed.scenario.manifests import training_job

SMALL, LARGEST = map(int, os.environ.get("BIREME_GREEDY_JOBS", "1500:40").split(":"))
OTHERS = int(os.environ.get("BIREME_GREEDY_OTHERS", "1"))
BETWEEN_SECONDS = 11.0
"""A rest of the loop is cut short once in ten seconds for a namespace."""
TOLD_SECONDS = 120 + SMALL / 20
# Without a cut, a rest of the loop after a turn of 3.3 s and more lasts 10 s. Seconds in which the
# operator ran, or waited for a processor, are the machine's: a start of 20,000 and 100 took 1.1 to
# 2.4 s alone on a machine, and 8.1 s beside three other tests on a slow one.
MAX_IDLE_SECONDS = 5.0
# An operator with nothing to do has 85 MiB. Of all that follows from a job, from its facts to what
# kopf and the writers of reports remember, a small one may have 18 KiB and a largest one 1.2 MiB:
# 600 MiB for 20,000 and 100.
MAX_MIB = 128 + SMALL * 18 / 1024 + LARGEST * 1.2


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def ready_seconds(pid: int) -> float:
    """Return the seconds in which threads of the process ran or waited for a processor.

    Source: Documentation/scheduler/sched-stats.rst of Linux.
    """
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(sum(map(int, task.read_text().split()[:2])) for task in tasks) / 1e9


def told(api: FakeApi) -> set[str]:
    """From now on: the names of the jobs whose status has a reason."""
    names_seen: set[str] = set()

    def note(change: Change) -> None:
        if change.after is not None and "reason" in (change.after.get("status") or {}):
            names_seen.add(change.after["metadata"]["name"])

    api.store.collection(JOBS).subscribers.append(note)
    return names_seen


async def test_every_job_of_a_greedy_tenant_is_told_and_another_tenants_starts(
    tmp_path: Path,
) -> None:
    async with FakeApi() as api:
        furnish(api, 4)
        for job in (*small_jobs(SMALL), *largest_jobs(LARGEST)):
            api.put(names.path("trainingjobs", TENANT, job["metadata"]["name"]), job)
        has_reason = told(api)
        environment = {"KUBECONFIG": str(api.kubeconfig(tmp_path)), "BIREME_METRICS_ADDRESS": ""}
        log = tmp_path / "operator.log"
        with log.open("w") as stderr:
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bireme_operator"),
                env={**os.environ, **environment},
                stderr=stderr,
            )
        try:

            async def lives_until(condition: Callable[[], object]) -> None:
                await until(lambda: program.returncode is not None or condition(), TOLD_SECONDS)
                assert program.returncode is None, log.read_text()[-1000:]

            await lives_until(lambda: has_reason)
            submit(api, training_job("mine"))
            await lives_until(lambda: status(api, "mine").get("phase") == "Starting")
            await lives_until(lambda: len(has_reason) == SMALL + LARGEST + 1)
            for number in range(OTHERS):
                if number:
                    await asyncio.sleep(BETWEEN_SECONDS + number / OTHERS)
                name, submitted = f"other-{number}", monotonic()
                ready = ready_seconds(program.pid)
                submit(api, training_job(name))
                await lives_until(lambda n=name: status(api, n).get("phase") == "Starting")  # type: ignore[misc]
                took = monotonic() - submitted
                idle = took - (ready_seconds(program.pid) - ready)
                peak = f"peak {peak_mib(program.pid):.0f} MiB"
                sys.stdout.write(f"{name}: {took:.2f} s, idle {idle:.2f} s, {peak}\n")
                assert idle < MAX_IDLE_SECONDS
            assert peak_mib(program.pid) < MAX_MIB
        finally:
            if program.returncode is None:
                program.terminate()
            await asyncio.wait_for(program.wait(), 30)
