"""The debug dump, its callers judged by the real API server, and its record replayed."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bireme.cli import main
from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.helm import Helm
from tests.support.scenario.manifests import task, training_job
from tests.support.scenario.tenant import Tenant
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    env = {"BIREME_DEBUG_DUMP": "true"}
    with gpu_stack("dump", tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


def asked(stack: BiremeStack, token: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an answer to the bearer of ``token``."""
    url = f"http://127.0.0.1:{stack.operator().env['BIREME_METRICS_PORT']}/debug/dump"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # likewise
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_it_goes_to_those_whom_the_api_server_allows_it_and_can_be_replayed(
    stack: BiremeStack, tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl, where = stack.cluster.kubectl, ("-n", tenant.namespace)
    for name in ("admin", "ann"):
        kubectl("create", "serviceaccount", name, *where)
    kubectl("create", "clusterrole", "dump", "--verb=get", "--non-resource-url=/debug/dump")
    account = f"--serviceaccount={tenant.namespace}:admin"
    kubectl("create", "clusterrolebinding", "dump", "--clusterrole=dump", account)
    tokens = {n: kubectl("create", "token", n, *where).strip() for n in ("admin", "ann")}

    secret = [{"name": "KEY", "value": "hush-hush"}]
    spec = task()["template"]["spec"]
    spec["containers"][0]["env"] = secret
    tenant.create(training_job("runs", task(replicas=16, spec=spec)))
    tenant.await_phase("runs", "Running")
    tenant.create(training_job("waits", task(replicas=4, spec=spec)))
    tenant.await_reason("waits", "WaitingForCapacity")

    assert asked(stack, "")[0] == asked(stack, "no.token.atall")[0] == 401
    status, body = asked(stack, tokens["ann"])
    assert (status, body["error"].split(":")[-1]) == (403, " ask for that nonResourceURL")
    status, body = asked(stack, tokens["admin"])
    assert status == 200
    assert (body["mode"], body["ready"]) == ("Apply", "yes")
    (held,) = body["decisions"]
    assert (held["do"], held["gang"]) == ("hold", f"{tenant.namespace}/waits")
    assert held["reason"] == "WaitingForCapacity"
    assert body["cycles"][-1]["actions"] == {"WaitingForCapacity": 1}
    assert 0 < body["cycles"][-1]["seconds"] < 60
    assert "hush-hush" not in json.dumps(body)

    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "record-00000001.jsonl").write_text(body["record"])
    assert main(["replay", str(folder), "--policy", "fifo"]) == 0
    assert capsys.readouterr().out
    codes = [asked(stack, tokens["ann"])[0] for _ in range(6)]
    assert codes[-1] == 429


def test_the_chart_grants_reviews_where_it_is_served_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    assert "subjectaccessreviews" not in helm.template()
    for mode in ("Apply", "Observe"):
        text = helm.template(f"--set=operator.mode={mode},operator.settings.debugDump=true")
        assert "resources: [subjectaccessreviews]" in text
        assert "debugDump: true" in text
