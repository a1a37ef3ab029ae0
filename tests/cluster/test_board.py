"""``bireme ui`` on a real control plane, in a real browser."""

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from testbed.board import PAGES, Visitor, board, chromium
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import task, training_job
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]
_GPUS = 8
"""Of the whole cluster."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("board", tmp_path_factory.mktemp("stack"), nodes=1, gpus=_GPUS) as stack:
        yield stack


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def visitor(tenant: Tenant, browser: Browser, tmp_path: Path) -> Iterator[Visitor]:
    target = (f"--kubeconfig={tenant.cluster.kubeconfig}", f"--namespace={tenant.namespace}")
    with board(*target, log=tmp_path / "ui.log") as address:
        yield Visitor(browser, address)


def why(tenant: Tenant, name: str) -> str:
    target = (f"--kubeconfig={tenant.cluster.kubeconfig}", f"-n={tenant.namespace}")
    # A program of its own: Playwright has taken the event loop of this one.
    command = [sys.executable, "-m", "bireme.cli", "why", name, *target]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def without_times(text: str) -> str:
    """What two readers are told that look a second apart."""
    return re.sub(r"(?m)^(waits|start|priority) .*$", r"\1", text).strip()


def test_every_page_says_what_the_command_line_says(tenant: Tenant, visitor: Visitor) -> None:
    tenant.create(training_job("runs", task("worker", 2, gpus=4)))
    tenant.await_phase("runs", "Running")
    tenant.create(training_job("waits", task("worker", 2, gpus=4)))
    tenant.create(training_job("huge", task("worker", 1, gpus=64)))
    tenant.await_reason("waits", "WaitingForCapacity")
    tenant.await_reason("huge", "NeverFits")

    # Text equals the command line's, job by job.
    for name in ("runs", "waits", "huge"):

        def both(name: str = name) -> tuple[str, str]:
            told = why(tenant, name)
            page = visitor.open(f"/job/{tenant.namespace}/{name}")
            return without_times(page.inner_text("#why")), without_times(told)

        # The status of the queue, which both tell, follows a moment later.
        eventually(both, lambda told: told[0] == told[1], 20)
    visitor.open(f"/job/{tenant.namespace}/runs")
    assert "runs-worker-0" in visitor.text("section:has(#pods)")

    visitor.open(f"/job/{tenant.namespace}/huge")

    def events() -> str:
        visitor.page.reload()
        return visitor.text("section:has(#events)")

    eventually(events, lambda text: "Warning\tNeverFits" in text, 20)

    # Every page is readable by anybody, in light and dark, on a phone and on a wide screen.
    for path in (*PAGES, f"/job/{tenant.namespace}/runs", f"/job/{tenant.namespace}/waits"):
        visitor.judge(path)
    # Where no leader answers, the page says what to do.
    assert "set operator.settings.outlook to true" in visitor.text("#kept-unknown")
    visitor.page.click("form.question button")
    visitor.page.wait_for_selector("#fault")
    assert "set operator.settings.outlook to true" in visitor.text("#fault")
    visitor.judge(f"/what-if/{tenant.namespace}/waits?seconds=5&queue=default")

    visitor.open("/nodes")
    squares = visitor.page.get_attribute("svg.cells", "aria-label")
    assert squares == f"{_GPUS} of {_GPUS} used, {tenant.namespace}/runs {_GPUS}"

    # What changes is shown without a reload, and what has the focus keeps it.
    visitor.open("/")
    visitor.page.focus(f"a[href='/job/{tenant.namespace}/waits']")
    tenant.delete("TrainingJob", "runs")
    shown = f"section:has(#runs) a[href='/job/{tenant.namespace}/waits']"
    visitor.page.wait_for_selector(shown, timeout=20_000)
    focused = "document.activeElement.getAttribute('href')"
    assert visitor.page.evaluate(focused) == f"/job/{tenant.namespace}/waits"
    assert visitor.faults == []


def answer(url: str, method: str = "GET", **headers: str) -> int:
    """The status of an answer to somebody who is no browser."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_the_browser_that_opened_the_address_gets_in(visitor: Visitor) -> None:
    assert answer(visitor.address) == 403, "the token has been used"
    assert answer(f"{visitor.base}/") == 403
    assert answer(f"{visitor.base}/static/board.js") == 403
    (cookie,) = visitor.page.context.cookies()
    mine = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert answer(f"{visitor.base}/", **mine) == 200
    assert answer(f"{visitor.base}/", **mine, Host="attacker.example") == 421
    assert answer(f"{visitor.base}/", "POST", **mine) == 405
    policy = visitor.open("/").evaluate(
        "fetch('/').then(a => a.headers.get('content-security-policy'))"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_tenant_sees_its_own_namespace_and_is_told_so(
    tenant: Tenant, browser: Browser, tmp_path: Path
) -> None:
    other = tenant.cluster.create_namespace(f"{tenant.namespace}-other")
    Tenant(tenant.cluster, other).create(training_job("secret", task("worker", 1)))
    tenant.create(training_job("mine", task("worker", 1)))
    tenant.await_phase("mine", "Running")
    within = f"--namespace={tenant.namespace}"
    gangs = "--resource=trainingjobs.bireme.dev,podgroups.bireme.dev"
    tenant.cluster.kubectl("create", "role", "see", "--verb=get,list,watch", gangs, within)
    tenant.cluster.kubectl("create", "rolebinding", "ann", "--role=see", "--user=ann", within)
    target = (f"--kubeconfig={tenant.cluster.kubeconfig}", f"--namespace={tenant.namespace}")
    with board(*target, "--as=ann", log=tmp_path / "ui.log") as address:
        visitor = Visitor(browser, address)
        assert f"{tenant.namespace}/mine" in visitor.text()
        assert f"You may read only namespace {tenant.namespace}" in visitor.text()
        for path in PAGES:
            visitor.open(path)
            assert other not in visitor.text()
        visitor.open(f"/job/{other}/secret")
        assert "Not there" in visitor.text()
