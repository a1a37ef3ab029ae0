"""The outlook of a leading operator, asked for over HTTP by readers of different rights."""

from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names
from bireme_operator import http_callers
from testbed.fakeapi import FakeApi, Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.endpoint import serving, whole
from testbed.operator_term.term import furnish, leading, status, submit, until
from testbed.scenario.manifests import queue

ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def test_each_reader_sees_the_namespaces_whose_jobs_they_may_list(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.answers.readers = {"root": {""}, "ann": {"red"}, "bob": {"red", "blue"}, "eve": set()}
    settings: dict[str, Any] = {"outlook": True, "outlook_interval_seconds": 0.0}
    async with FakeKubelets(api, runs), leading(api, tmp_path, **settings) as term:
        submit(api, whole("runs"))
        await until(lambda: status(api, "runs").get("phase") == "Running")
        async with serving(api, tmp_path, term) as endpoint:
            for name, namespace in (("first", "red"), ("second", "blue")):
                path = names.path("trainingjobs", namespace, name)
                api.put(path, whole(name, namespace))

            def foresees_both() -> bool:
                latest = term.outlooks.latest if term.outlooks is not None else None
                return latest is not None and len(latest.outlook.prospects) == 2

            await until(foresees_both)
            assert sorted(await endpoint.gangs("root")) == ["blue/second", "red/first"]
            assert await endpoint.gangs("root", "blue") == ["blue/second"]
            assert await endpoint.gangs("ann") == ["red/first"]
            assert len(await endpoint.gangs("bob")) == 2
            assert await endpoint.gangs("bob", "blue") == ["blue/second"]
            assert await endpoint.gangs("eve") == []
            code, refused = await endpoint.ask("ann", "blue")
            assert (code, refused["reason"]) == (403, "Forbidden")
            assert "ann may not list trainingjobs in namespace 'blue'" in refused["message"]

            code, told = await endpoint.ask("ann")
            (gang,) = told["gangs"]
            assert (told["apiVersion"], told["namespaces"]) == ("outlook.bireme.dev/v2", ["red"])
            assert 0 <= told["foresight"]["ageSeconds"] < 600
            assert (gang["reason"], gang["gpus"]) == ("WaitingForCapacity", 8)
            assert gang["estimatedStart"]["earliest"] == gang["start"] > told["time"]
            assert (gang["priority"] is None, gang["message"] != "") == (False, True)

            reviews = api.requests["POST", ACCESS]
            await endpoint.gangs("ann")
            assert api.requests["POST", ACCESS] == reviews, "answers are remembered"
            api.answers.readers["ann"] = set()
            endpoint.clock.advance(61.0)
            assert await endpoint.gangs("ann") == [], "for a minute"


@pytest.mark.parametrize("outlook", [True, False])
async def test_only_by_the_outlook_those_behind_the_first_have_an_estimate_in_their_status(
    api: FakeApi, tmp_path: Path, outlook: bool
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/other", queue("other"))
    settings: dict[str, Any] = {"outlook": outlook, "status_refresh_seconds": 0.1}
    async with FakeKubelets(api, runs), leading(api, tmp_path, **settings) as term:
        submit(api, whole("runs"))
        await until(lambda: status(api, "runs").get("phase") == "Running")
        submit(api, whole("first"), whole("second"), whole("head", queue="other"))

        def estimated() -> set[str]:
            waiting = {"first", "second", "head"}
            return {name for name in waiting if status(api, name).get("estimatedStart")}

        if outlook:
            await until(lambda: len(estimated()) == 3)
            assert term.outlooks is not None
            assert term.outlooks.latest is not None
            foreseen = {
                each.gang.name: each.start for each in term.outlooks.latest.outlook.prospects
            }
            second, head = sorted((foreseen["second"] or 0.0, foreseen["head"] or 0.0))
            assert second + 3599 < head, "one after another"
        else:
            await until(lambda: len(estimated()) == 1)
            await until(
                lambda: all(status(api, n).get("queuePosition") for n in ("second", "head"))
            )
            assert len(estimated()) == 1


async def test_who_may_not_or_cannot_be_answered_is_told_why(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(api, 1)
    api.answers.readers = {"ann": {"red"}, "root": {""}}
    monkeypatch.setattr(http_callers, "MAX_NAMESPACES", 1)
    async with leading(api, tmp_path, outlook=True) as term, serving(api, tmp_path, term) as asked:
        assert (await asked.ask(""))[0] == 401
        await until(lambda: term.outlooks is not None and term.outlooks.latest is not None)
        code, body = await asked.ask("ann", "a", "b")
        assert (code, "name up to 1" in body["message"]) == (403, True)
        api.faults.add(Fault(status=500), lambda _, path, __: "/tickets/" in path, times=None)
        assert (await asked.ask("new"))[0] == 503
        api.faults.clear()
        assert term.outlooks is not None
        term.outlooks.latest = None
        code, body = await asked.ask("root")
        assert (code, body["foresight"]) == (200, None), "the gangs are listed without starts"
        term.outlooks.current = None
        code, body = await asked.ask("root")
        assert (code, "nothing has been decided yet" in body["message"]) == (503, True)
        asked.term = None
        code, body = await asked.ask("root")
        assert (code, "does not lead" in body["message"]) == (503, True)
        codes = []
        for _ in range(12):
            asked.clock.advance(-1.0)
            codes.append((await asked.ask("root"))[0])
        assert codes[-1] == 429
