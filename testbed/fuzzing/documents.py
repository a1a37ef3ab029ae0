"""Everything that is read besides watches: a good document of each, and how it is read."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bireme import prometheus
from bireme.cli import convert, manifest_files
from bireme.core.errors import BiremeError
from bireme.core.settings import SchedulingSettings
from bireme.kube import device_selectors, disruption_budgets, envelopes, quantities, wire
from bireme.kube.credentials import CredentialsError, CredentialSource
from bireme.replay.reader import open_record
from bireme.settings_source import parse, read
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces import job_logs, series
from bireme_operator.settings import OperatorSettings
from testbed.recordings import record
from testbed.scenario.manifests import disruption_budget, task, training_job


@dataclass(frozen=True, slots=True)
class Document:
    """A good ``text``, what reads it, and what may be raised of a bad one; JSON where it is."""

    text: bytes
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]

    @property
    def content(self) -> Any:
        """Return the document as plain data; None where it is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


def _in_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader that is given the bytes in a file called ``name``."""

    def read_it(text: bytes) -> object:
        with TemporaryDirectory(prefix="fuzz-") as folder:
            path = Path(folder) / name
            path.write_bytes(text)
            return use(path)

    return read_it


def _record() -> bytes:
    """A record of two cycles: a gang that starts, and one that waits."""
    nodes = [a_node("n0"), a_node("n1")]
    gangs = [a_gang("small", a_task(2, gpus=2)), a_gang("large", a_task(9, gpus=8))]
    first = a_snapshot(nodes, *gangs)
    with TemporaryDirectory(prefix="fuzz-") as folder:
        record(Path(folder), first, replace(first, now=first.now + 60, waiting=first.waiting[1:]))
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


def _replayed(path: Path) -> object:
    return list(open_record([path]).cycles())


def _settings(text: bytes) -> object:
    sections = parse(text, "the file")
    return read(OperatorSettings, {}, sections), read(SchedulingSettings, {}, sections)


def _kubeconfig(path: Path) -> object:
    return asyncio.run(CredentialSource(path).current())


def _answer(body: bytes) -> object:
    answer = prometheus._parse(200, body, "url")
    return prometheus._values_by_hour(prometheus._only_series(answer.data), 0, 3, [])


def _selector(text: bytes) -> object:
    expression = text.decode(errors="replace")
    attributes = {"model": wire.V1DeviceAttribute(string="h100")}
    found = wire.V1Device(name="gpu-0", attributes=attributes)
    if device_selectors.is_short(expression):
        return device_selectors.selects(expression, "gpu.example.com", found)
    return None


def _volcano(text: bytes) -> object:
    return convert.convert(_manifests(text), {})


def _manifests(text: bytes) -> list[Any]:
    return manifest_files.manifests(text.decode(errors="replace"), "the file")


def _as_text(use: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda text: use(text.decode(errors="replace"))


_CLUSTER: Final = {
    "name": "c",
    "cluster": {"server": "http://127.0.0.1:1", "proxy-url": "http://p"},
}
_USER: Final = {"name": "u", "user": {"token": "secret"}}
_CONTEXT: Final = {"name": "x", "context": {"cluster": "c", "user": "u"}}
_VOLCANO: Final = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "minAvailable": 2,
        "queue": "default",
        "plugins": {"pytorch": ["--master=master", "--worker=worker"], "svc": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "maxRetry": 3,
        "tasks": [
            {
                "name": "worker",
                "replicas": 2,
                "minAvailable": 1,
                "dependsOn": {"name": ["master"]},
                "template": task()["template"],
            },
            {"name": "master", "replicas": 1, "template": task()["template"]},
        ],
    },
}
_BUDGET: Final = {
    **disruption_budget("keep", 1, app="a"),
    "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
}
_SERIES: Final = {"metric": {}, "values": [[3600, "1"], [7200, "2.5"], [10800, "NaN"]]}
_FOUND: Final = {"resultType": "matrix", "result": [_SERIES]}


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


DOCUMENTS: Final = {
    "records": Document(_record(), _in_file("record-000001.jsonl", _replayed), (BiremeError,)),
    "manifests": Document(_json(training_job("job", task())), _manifests, (BiremeError,)),
    "manifests of Volcano": Document(_json(_VOLCANO), _volcano, (BiremeError,)),
    "settings": Document(
        b"scheduling: {orderer: fifo, waitWeight: 0.5}\noperator: {nodeLostSeconds: 40}\n",
        _settings,
        (BiremeError,),
    ),
    "kubeconfigs": Document(
        _json(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [_CLUSTER],
                "users": [_USER],
                "contexts": [_CONTEXT],
            }
        ),
        _in_file("kubeconfig", _kubeconfig),
        (CredentialsError,),
    ),
    "answers of Prometheus": Document(
        _json({"status": "success", "data": _FOUND}), _answer, (BiremeError,)
    ),
    "disruption budgets": Document(
        _json(_BUDGET), lambda text: disruption_budgets.read([text]), envelopes.UNDECODABLE
    ),
    "device selectors": Document(
        b'device.attributes["gpu.example.com"].model == "h100"', _selector, ()
    ),
    "durations": Document(b"1h30m", _as_text(quantities.parse_duration), (ValueError,)),
    "timestamps": Document(b"2026-01-31T12:00:00Z", _as_text(quantities.parse_timestamp), ()),
    "tables of jobs": Document(
        b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-03 13:27:08,60,1,60,a\n",
        _in_file("jobs.csv", job_logs.read_philly),
        (TraceError,),
    ),
    "tables of time series": Document(
        b"time,load\n2026-01-01T00:00,1\n2026-01-01T01:00,2\n2026-01-01T02:00,3\n",
        _in_file("series.csv", series.read_series),
        (TraceError,),
    ),
}
"""By what they are called on the page on reliability."""
