"""Needs of the operator at its start, tried as a program."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.operator_term.term import JOBS, furnish, status, submit, until
from testbed.scenario.manifests import task, training_job

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMELESS = """
import getpass

def nameless():
    raise KeyError("getpwuid(): uid not found: 65532")

getpass.getuser = nameless
from bireme_operator.__main__ import main
raise SystemExit(main())
"""


def test_a_user_without_a_name_gets_as_far_as_the_credentials(tmp_path: Path) -> None:
    """As in a container whose user is in no /etc/passwd: any image, run as any number."""
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    program = [sys.executable, "-c", NAMELESS]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    logged = json.loads(done.stderr.splitlines()[-1])
    assert logged["event"] == "cannot start"
    assert logged["error"].startswith(f"cannot use {tmp_path / 'none'} as credentials")
    assert "uid not found" not in done.stderr


async def test_an_error_within_a_watch_ends_nothing_and_nobody_watches_twice(
    tmp_path: Path,
) -> None:
    """kopf ends its operator, leader and standby alike, at a 500 within a watch of its own."""
    error = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError"}
    async with FakeApi() as api:
        furnish(api, 1)
        kubeconfig = str(api.kubeconfig(tmp_path))
        env = {**os.environ, "KUBECONFIG": kubeconfig, "BIREME_METRICS_ADDRESS": ""}
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bireme_operator", env=env, stderr=subprocess.DEVNULL
        )
        try:
            submit(api, training_job("first", task(gpus=9)))
            await until(lambda: status(api, "first").get("reason") == "NeverFits")
            assert api.open_watches(names.path("queues")) == api.open_watches(JOBS) == 1
            assert api.open_watches(CRDS) == 0
            for resource in (names.path("queues"), JOBS):
                api.watch_send(resource, json.dumps({"type": "ERROR", "object": error}).encode())
            submit(api, training_job("second", task(gpus=9)))
            await until(lambda: status(api, "second").get("reason") == "NeverFits")
            assert program.returncode is None
        finally:
            if program.returncode is None:
                program.terminate()
            assert await asyncio.wait_for(program.wait(), 30) == 0
