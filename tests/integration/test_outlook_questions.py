"""What-if questions to a leading operator, by readers of different rights, and their words."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names
from bireme.replay.outlook_reply import VERSION
from bireme_operator import outlook_endpoint
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.fakeapi.server import kubeconfig_of
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.endpoint import Endpoint, serving, whole
from testbed.operator_term.term import furnish, leading, status, submit, until
from tests.integration.test_console import output

PROXY = "/api/v1/namespaces/bireme-system/services/bireme-outlook:outlook/proxy/v1/outlook"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def question(**asked: Any) -> bytes:
    return json.dumps({"apiVersion": VERSION, "question": asked}).encode()


async def answer(endpoint: Endpoint, who: str, **asked: Any) -> dict[str, Any]:
    code, body = await endpoint.post(who, question(**asked))
    assert code == 200, body
    (told,) = body["answers"]
    return dict(told["answer"])


async def refusal(endpoint: Endpoint, who: str, **asked: Any) -> tuple[int, str]:
    code, body = await endpoint.post(who, question(**asked))
    return code, body["message"]


def waits(term: LeaderTerm, count: int) -> bool:
    current = term.outlooks.current if term.outlooks is not None else None
    return current is not None and len(current.snapshot.waiting) == count


async def test_a_reader_is_told_of_their_jobs_and_no_name_of_others(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    furnish(api, 1)
    api.put(f"{CLASSES}/high", {"metadata": {"name": "high"}, "value": 1000})
    api.answers.readers = {"root": {""}, "ann": {"red"}}
    api.answers.creators = {"ann": {"red"}}
    async with FakeKubelets(api, runs), leading(api, tmp_path, outlook=True) as term:
        submit(api, whole("runs"))
        await until(lambda: status(api, "runs").get("phase") == "Running")
        api.put(names.path("trainingjobs", "blue", "first"), whole("first", "blue"))
        await until(lambda: waits(term, 1))
        api.put(names.path("trainingjobs", "red", "second"), whole("second", "red"))
        await until(lambda: waits(term, 2))
        async with serving(api, tmp_path, term) as endpoint:
            second = {"namespace": "red", "name": "second"}
            found = (await answer(endpoint, "ann", **second))["foreseen"]
            assert (found["position"], found["ahead"]) == (2, {"count": 1, "named": []})
            assert (found["begins"], "first" in str(found)) == ("Later", False)
            found = (await answer(endpoint, "root", **second))["foreseen"]
            assert found["ahead"] == {"count": 1, "named": ["blue/first"]}

            change = {"priorityClass": "high"}
            found = await answer(endpoint, "ann", **second, change=change)
            assert (found["priority"], found["foreseen"]["position"]) == (1000, 1)
            code, why = await refusal(endpoint, "ann", **second, tries=[{"priorityClass": "low"}])
            assert (code, why) == (
                422,
                "class: there is no PriorityClass low; name one that exists",
            )
            code, why = await refusal(endpoint, "ann", namespace="blue", name="first")
            assert (code, "ann may not list trainingjobs in namespace 'blue'" in why) == (403, True)
            assert (await refusal(endpoint, "ann", namespace="red", name="none"))[0] == 422

            new = {"manifests": [whole("new", "red", priorityClassName="high")]}
            found = await answer(endpoint, "ann", **new)
            assert (found["namespace"], found["priority"]) == ("red", 1000)
            code, why = await refusal(endpoint, "root", **new)
            assert (code, "root may not create trainingjobs" in why) == (403, True)
            lost = {"manifests": [whole("new", "red", queue="lost")]}
            code, why = await refusal(endpoint, "ann", **lost)
            assert (code, why.endswith("no queue 'lost'; name one that exists")) == (422, True)

            _, api.documents[PROXY] = await endpoint.post("ann", question(**second))
    config = tmp_path / "ann.json"
    config.write_text(json.dumps(kubeconfig_of(api.url)))
    asked = ("why", "second", "-n", "red", "--kubeconfig", str(config), "--what-if")
    code, out, err = await output(capsys, *asked, "estimate=1h")
    assert (code, err) == (0, "")
    assert "TrainingJob red/second: 8 worker, queue default" in out
    assert "position 2, behind 1 gang" in out
    assert "by the policy of the settings" in out
    code, _, err = await output(capsys, *asked, "class=high", "--priority-class", "high=1")
    assert (code, "needs --record" in err) == (2, True)
    del api.documents[PROXY]
    code, _, err = await output(capsys, *asked, "class=high")
    assert (code, "set operator.settings.outlook to true" in err) == (1, True)
    assert "ask a record by --record" in err


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 400, "the body is not a question"),
        (b"[" * 100_000, 400, "the body is not a question"),
        (b'{"apiVersion": "v9", "question": {}}', 400, "apiVersion: 'v9' is not known; send outl"),
        (question(name="x", namespace="red", colour=1), 400, "unknown field `colour`"),
        (question(name="x", namespace="red", change={"replicas": {"": 0}}), 400, ">= 1"),
        (question(name="x"), 422, "name, namespace: are missing"),
        (question(name="x", namespace="red/../"), 422, "name, namespace: are no names"),
        (question(manifests=[{}] * 21), 422, "manifests: 21 are too many; send at most 20"),
        (question(name="x", namespace="red", tries=[{}] * 13), 422, "tries: 13 are too many"),
        (question(manifests=[{"metadata": []}], namespace="red"), 422, "metadata.name: is missing"),
        (question(name="x" * 300_000, namespace="red"), 413, "longer than 262144 bytes"),
    ],
)
async def test_what_is_no_question_is_refused(
    api: FakeApi, tmp_path: Path, body: bytes, code: int, words: str
) -> None:
    furnish(api, 1)
    api.answers.readers = api.answers.creators = {"ann": {"red"}}
    async with leading(api, tmp_path, outlook=True) as term, serving(api, tmp_path, term) as asked:
        await until(lambda: waits(term, 0))
        found, told = await asked.post("ann", body)
        assert (found, words in told["message"]) == (code, True), told


async def test_one_question_is_answered_at_a_time_and_few_wait(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(api, 1)
    api.answers.readers = {"ann": {""}, "bob": {""}, "eve": {""}}
    monkeypatch.setattr(outlook_endpoint, "MAX_WAITING", 2)
    body = question(name="x", namespace="red")
    async with leading(api, tmp_path, outlook=True) as term, serving(api, tmp_path, term) as asked:
        await until(lambda: waits(term, 0))
        assert term.outlooks is not None
        questions = term.outlooks.questions
        questions.program = (sys.executable, "-c", "import time; time.sleep(1000)")
        questions.limit_seconds = 2.0
        first = [asyncio.create_task(asked.post(who, body)) for who in ("ann", "bob")]
        await asyncio.sleep(0.5)
        code, told = await asked.post("ann", body)
        assert (code, "your last question is not answered yet" in told["message"]) == (429, True)
        code, told = await asked.post("eve", question(name="x", namespace="blue"))
        assert (code, "too many questions wait" in told["message"]) == (429, True)
        for code, told in await asyncio.gather(*first):
            assert (code, "no answer" in told["message"]) == (503, True)
        assert (await asked.post("", body))[0] == 401
        asked.term = None
        code, told = await asked.post("ann", body)
        assert (code, "does not lead" in told["message"]) == (503, True)


async def test_accounts_of_one_tenant_hold_one_place_and_a_namespace_no_more_than_two(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    accounts = [f"system:serviceaccount:red:bot-{number}" for number in range(4)]
    users = ["ann", "bob", "eve", "joe"]
    api.answers.readers = {who: {""} for who in (*accounts, *users)}
    about_red, about_blue = (question(name="x", namespace=name) for name in ("red", "blue"))
    async with leading(api, tmp_path, outlook=True) as term, serving(api, tmp_path, term) as asked:
        await until(lambda: waits(term, 0))
        assert term.outlooks is not None
        questions = term.outlooks.questions
        questions.program = (sys.executable, "-c", "import time; time.sleep(1000)")
        questions.limit_seconds = 2.0
        first = asyncio.create_task(asked.post(accounts[0], about_red))
        await until(lambda: len(asked.asking) == 1)
        for account in accounts[1:]:
            code, told = await asked.post(account, about_blue)
            assert (code, "your last question" in told["message"]) == (429, True)
        second = asyncio.create_task(asked.post("ann", about_red))
        await until(lambda: len(asked.asking) == 2)
        code, told = await asked.post("bob", about_red)
        assert (code, "2 questions about namespace 'red' wait" in told["message"]) == (429, True)
        third = asyncio.create_task(asked.post("bob", about_blue))
        await until(lambda: len(asked.asking) == 3)
        for code, told in await asyncio.gather(first, second, third):
            assert (code, "no answer" in told["message"]) == (503, True)
