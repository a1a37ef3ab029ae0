"""From a history to nodes in time: the nightly job with the chart's rights, operator, Karpenter."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.controlplane.karpenter import static_pool
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.helm import CHART, Helm, account_kubeconfig
from testbed.scenario.pools import (
    await_nodes,
    condition,
    pool_job,
    pool_scaler,
    pool_stack,
    recorded_status,
)
from testbed.scenario.tenant import Tenant, nodes_of

pytestmark = pytest.mark.cluster

NAMESPACE = "bireme-system"
Nightly = Callable[..., str]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with pool_stack("nightly", tmp_path_factory.mktemp("nightly")) as stack:
        yield stack


@pytest.fixture(scope="module")
def nightly(stack: BiremeStack, tmp_path_factory: pytest.TempPathFactory) -> Nightly:
    """Runs the nightly job as the chart's CronJob does: its command, with its account."""
    folder = tmp_path_factory.mktemp("helm")
    where = ("--create-namespace", f"--namespace={NAMESPACE}", "--set=crds.enabled=false")
    # The operator is not its.
    off = ("use", "pods", "status")
    flags = (*where, *(f"--set=admission.{policy}=false" for policy in off))
    done = Helm(folder)("install", "bireme", str(CHART), *flags, cluster=stack.cluster)
    assert done.returncode == 0, done.stderr
    cluster = stack.cluster
    cron_job = cluster.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/bireme-forecast")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    account = pod["serviceAccountName"]
    known = account_kubeconfig(cluster, NAMESPACE, account, folder / "kubeconfig")
    settings = {v["name"]: v["value"] for v in container["env"]}
    program, *arguments = container["command"]
    assert program == "bireme"

    def run(*more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bireme.cli", *arguments, *more],
            env=os.environ | settings | {"KUBECONFIG": str(known)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def busy_around_now(hour: float) -> float:
    """Demand that rises to 2.6 nodes for four hours around this time of the day."""
    now = time.time()  # noqa: TID251  # the hour in which the test runs is the busy one
    since = (hour - now + 2 * 3600) % 86_400
    return 2.6 if since < 4 * 3600 else 0.4


def test_demand_that_rises_every_day_finds_its_nodes_there(
    tenant: Tenant, nightly: Nightly
) -> None:
    tenant.create(*static_pool("daily", delay="20s"), pool_scaler("daily"))
    tenant.patch("NodePoolScaler", "daily", {"status": recorded_status(busy_around_now)}, "status")
    nightly("daily")
    before = await_nodes(tenant, "daily", 3)
    tenant.create(pool_job("morning", "daily", nodes=3))
    tenant.await_phase("morning", "Running")
    assert set(nodes_of(tenant.pods("morning")).values()) == before


def test_stranger_is_shown_what_the_pool_will_do_tomorrow_and_why(
    tenant: Tenant, nightly: Nightly
) -> None:
    tenant.create(*static_pool("shown"), pool_scaler("shown"))
    tenant.patch("NodePoolScaler", "shown", {"status": recorded_status(busy_around_now)}, "status")
    nightly("shown")
    tenant.eventually(lambda: tenant.status("shown", "NodePoolScaler").get("floor") == 3)

    def missing() -> list[str]:
        status = tenant.status("shown", "NodePoolScaler")
        heading, line = tenant.cluster.kubectl("get", "bnps", "shown").splitlines()
        for column in ("MODE", "NODES", "FLOOR", "TOMORROW", "MODEL", "SKILL", "WHY"):
            assert column in heading
        cells = (status["tomorrow"], status["model"]["name"], status["why"])
        return [cell for cell in cells if cell not in line]

    # The operator may write the status between the two reads.
    tenant.eventually(missing, lambda cells: not cells)
    status = tenant.status("shown", "NodePoolScaler")
    assert "3" in status["tomorrow"]
    assert len(status["forecast"]) == 48


def test_pool_without_a_history_is_left_without_a_forecast_and_shows_why(
    tenant: Tenant, nightly: Nightly
) -> None:
    tenant.create(*static_pool("young"), pool_scaler("young"))
    nightly()
    forecast = condition(tenant, "young", "Forecast")
    assert (forecast["status"], forecast["reason"]) == ("False", "TooLittleHistory")
    assert not tenant.status("young", "NodePoolScaler").get("forecast")
