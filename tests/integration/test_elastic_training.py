"""A real elastic training: torchrun's agents as pods of a gang that the operator resizes.

The operator is whole; behind the fake API server, its pods are processes on this machine.
"""

import re
import time
from pathlib import Path

import pytest
import yaml

from bireme.core.settings import SchedulingSettings
from fakeapi import FakeApi
from kubeobjects.programs import ProgramKubelets, free_port
from kubeobjects.terms import GROUPS, JOBS, furnish, leading, pods, status, submit, until
from scenario.manifests import Manifest, pod_spec, task, training_job
from scenario.tenant import uids_of

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "10-elastic-torch.yaml"
PATIENCE_SECONDS = 90.0


def test_x() -> None: ...


def rigid(name: str, cpus: int) -> Manifest:
    return training_job(name, task(spec=pod_spec(0, str(cpus))))


TOLD = re.compile(r"step (\d+) of \d+, loss ([\d.]+), (\d) processes")


async def test_training_goes_on(api: FakeApi, tmp_path: Path) -> None:
    config, job = yaml.safe_load_all(EXAMPLE.read_text())
    script = tmp_path / "train.py"
    script.write_text(config["data"]["train.py"].replace("from bireme.report import finish, report", "finish = report = lambda **k: 0"))
    swapped = {
        "/workspace/train.py": str(script),
        "/state/last.pt": str(tmp_path / "last.pt"),
        ":29500": f":{free_port()}",
        "200000": "1000000000",
    }
    furnish(api, 1)
    settled = SchedulingSettings(resize_settle_seconds=2)
    kub = ProgramKubelets(api, tmp_path, swapped)

    def told():
        return [(int(a), float(b), int(c)) for a, b, c in TOLD.findall(kub.log("elastic-torch-worker-0"))]

    t0 = time.monotonic()

    async def size(n):
        t = time.monotonic()
        await until(lambda: [p for p in pods(api) if p["metadata"]["name"].startswith("elastic") and "deletionTimestamp" not in p["metadata"]].__len__() == n, 20)
        t1 = time.monotonic()
        k = len(told())
        await until(lambda: told()[k:] and told()[-1][2] == n, PATIENCE_SECONDS)
        print(f"size {n}: plan after {t1 - t:.1f}, trains after {time.monotonic() - t:.1f}; {told()[-1]} at {time.monotonic()-t0:.1f}")

    async with kub, leading(api, tmp_path, scheduling=settled):
        submit(api, rigid("first", 94))
        await until(lambda: status(api, "first").get("phase") == "Running")
        submit(api, job)
        await size(2)
        api.store.delete(JOBS, ("default", "first"), {})
        api.store.delete(GROUPS, ("default", "first"), {})
        for p in pods(api):
            if p["metadata"]["name"].startswith("first"):
                api.store.delete("/api/v1/pods", ("default", p["metadata"]["name"]), {}, grace_seconds=0)
        await size(3)
        submit(api, rigid("second", 95))
        await size(1)
    seen = told()
    drops = [b[0] - a[0] for a, b in zip(seen, seen[1:]) if b[0] < a[0]]
    print(seen[0], seen[-1], drops, len(seen))
