"""One cluster that scripts are played on, through plain HTTP and the credentials of a file."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from testbed.history.recorder import COLLECTIONS, Recorder
from testbed.parity.answers import PlainAnswer
from testbed.parity.scripts.script import (
    NAMESPACE_PREFIX,
    OWNED,
    SHARED,
    Script,
    ScriptStep,
    path_of,
)
from testbed.parity.states import State, is_moving, state_of
from testbed.scenario.manifests import Manifest

_WATCHED: Final = {**COLLECTIONS, "Job": "/apis/batch/v1/jobs"}
STILL_SECONDS: Final = 0.4
"""A cluster is at rest when nothing has changed for so long."""
_STILL_POLL_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 0.1
_GONE_SECONDS: Final = 60.0
_READY_SECONDS: Final = 30.0


class ParityError(Exception):
    """A cluster cannot be used for scripts; the message says why."""


@dataclass(eq=False)
class PlayedCluster:
    """A cluster. ``open`` makes one; ``script`` furnishes it for one script."""

    name: str
    kubeconfig: Path
    session: aiohttp.ClientSession
    _recorder: Recorder = field(init=False)
    _first: dict[str, frozenset[str]] = field(default_factory=dict)
    """By kind of the whole cluster, the names of objects that are no script's."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, name: str, kubeconfig: Path) -> AsyncIterator["PlayedCluster"]:
        """Connect to the server of a kubeconfig, and watch it."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
        if "client-certificate" in user:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        async with aiohttp.ClientSession(
            cluster["server"], connector=aiohttp.TCPConnector(ssl=tls)
        ) as session:
            world = cls(name, kubeconfig, session)
            for kind in ("Queue", "PriorityClass"):
                world._first[kind] = frozenset(await world._names(SHARED[kind]))
            yield world

    # --- requests --------------------------------------------------------------------------------

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = ""
    ) -> tuple[int, Any, list[str]]:
        """Return status, body and warnings of the answer to a request."""
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type or "application/json"}
        async with self.session.request(method, path, data=data, headers=headers) as reply:
            text = await reply.text()
            warnings = [_warning(each) for each in reply.headers.getall("Warning", [])]
            is_json = "json" in reply.headers.get("Content-Type", "")
            return reply.status, json.loads(text) if is_json else text, warnings

    async def play(self, step: ScriptStep) -> PlainAnswer:
        """Send a step and return its answer."""
        body = step.body
        if step.basis == "stored":
            status, stored, _ = await self.request("GET", step.path)
            body = merge(stored, body) if status == HTTPStatus.OK else body
        status, answer, warnings = await self.request(
            step.method, step.path, body, step.content_type
        )
        return PlainAnswer.parse(status, answer, warnings)

    # --- states ----------------------------------------------------------------------------------

    def state(self, namespace: str) -> State:
        return state_of(self._recorder.objects, namespace)

    async def rest(self, namespace: str, deadline: float) -> None:
        """Return when nothing has changed for a while and nothing is on its way, or too late."""
        loop = asyncio.get_running_loop()
        changes, still_since = self._recorder.count, loop.time()
        while loop.time() < min(deadline, still_since + STILL_SECONDS):
            await asyncio.sleep(_STILL_POLL_SECONDS)
            is_changed = self._recorder.count != changes
            if is_changed or is_moving(self._recorder.objects, namespace):
                changes, still_since = self._recorder.count, loop.time()

    # --- scripts ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def script(self, script: Script) -> AsyncIterator[None]:
        """Watch and have a namespace for a script within the block; delete all of it afterwards."""
        self._recorder = Recorder(self.kubeconfig, collections=_WATCHED)
        await asyncio.to_thread(self._recorder.__enter__)
        try:
            await self._begin(script)
            yield
            await self._end(script)
        finally:
            await asyncio.to_thread(self._recorder.__exit__)

    async def _begin(self, script: Script) -> None:
        """Make the namespace of a script, and return when pods can be created in it."""
        await self._expect("POST", SHARED["Namespace"], {"metadata": {"name": script.namespace}})
        account = f"/api/v1/namespaces/{script.namespace}/serviceaccounts/default"
        async with asyncio.timeout(_READY_SECONDS):
            while (await self.request("GET", account))[0] != HTTPStatus.OK:
                await asyncio.sleep(_POLL_SECONDS)

    async def _end(self, script: Script) -> None:
        """Delete all that a script has made, and return when it is gone."""
        options = {"propagationPolicy": "Background"}
        for kind in ("TrainingJob", "PodGroup", "Job"):
            await self._expect("DELETE", path_of(kind, script.namespace), options)
        deadline = asyncio.get_running_loop().time() + _GONE_SECONDS
        while objects := [
            f"{kind} {name}"
            for kind in OWNED
            for name in await self._names(path_of(kind, script.namespace))
        ]:
            if asyncio.get_running_loop().time() > deadline:
                raise ParityError(f"{self.name}: of seed {script.seed} there still are {objects}")
            # By force, and again: a controller may have made one since.
            force = {"gracePeriodSeconds": 0}
            await self._expect("DELETE", path_of("Pod", script.namespace), force)
            await asyncio.sleep(_POLL_SECONDS)
        for kind, first in self._first.items():
            for name in set(await self._names(SHARED[kind])) - first:
                await self._expect("DELETE", path_of(kind, "", name))
        for name in await self._names(SHARED["Node"]):
            change = {"spec": {"unschedulable": None}}
            await self._expect("PATCH", path_of("Node", "", name), change)
        await self._expect("DELETE", path_of("Namespace", "", script.namespace))

    async def await_no_namespaces(self) -> None:
        """Return when the namespaces of all scripts are gone."""
        async with asyncio.timeout(_GONE_SECONDS):
            while any(
                n.startswith(NAMESPACE_PREFIX) for n in await self._names(SHARED["Namespace"])
            ):
                await asyncio.sleep(_POLL_SECONDS)

    async def _names(self, path: str) -> list[str]:
        listed = await self._expect("GET", path)
        return [item["metadata"]["name"] for item in listed["items"]]

    async def _expect(self, method: str, path: str, body: Any = None) -> Manifest:
        content_type = "application/merge-patch+json" if method == "PATCH" else ""
        status, answer, _ = await self.request(method, path, body, content_type)
        if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.NOT_FOUND:
            raise ParityError(f"{self.name}: {method} {path} was answered with {status}: {answer}")
        return answer if isinstance(answer, dict) else {}


def merge(target: Any, patch: Any) -> Any:
    """Return ``target`` with the objects of ``patch`` merged into it, nulls included."""
    if not (isinstance(target, dict) and isinstance(patch, dict)):
        return patch
    return {**target, **{name: merge(target.get(name), value) for name, value in patch.items()}}


def _warning(header: str) -> str:
    """Return the text of a header ``Warning``."""
    return header.partition('"')[2].rpartition('"')[0]
