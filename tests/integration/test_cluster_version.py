"""The API server's version among the operator's metrics."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from bireme.kube.client import ApiClient
from bireme_operator.cluster_version import keep_showing, parse
from bireme_operator.metrics import OperatorMetrics
from testbed.fakeapi import FakeApi
from testbed.fakeapi.faults import Fault
from testbed.operator_term.term import until


async def test_the_version_of_the_api_server_is_a_metric_once_it_answers(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bireme_operator.cluster_version._AGAIN_SECONDS", 0.01)
    api.faults.add(Fault(status=503), times=2)
    client, metrics = await ApiClient.connect(api.kubeconfig(tmp_path)), OperatorMetrics()
    showing = asyncio.create_task(keep_showing(client, metrics.kubernetes))
    labels = {"major": "1", "minor": "37"}
    try:
        await until(lambda: metrics.registry.get_sample_value("bireme_kubernetes_info", labels))
    finally:
        showing.cancel()
        await client.close()


@pytest.mark.parametrize("minor", ["37", "37+", "37-gke.100"])
def test_what_a_provider_adds_to_a_version_is_left_out(minor: str) -> None:
    assert parse(msgspec.json.encode({"major": "1", "minor": minor, "x": 1})) == ("1", "37")


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"major": 1, "minor": "7"}'])
def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse(answer)
    with pytest.raises(ValueError, match="no version"):
        parse(b'{"major": "1", "minor": ""}')
