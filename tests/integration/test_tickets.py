"""Tickets: who asks the operator says so without a token, and nobody as somebody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bireme.cli import leader
from bireme.kube import names
from bireme.kube.client import ApiClient
from bireme_operator.tickets import MAX_AGE_SECONDS, TICKET_HEADER
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.faults import DRY_RUN
from testbed.fakeapi.server import kubeconfig_of
from testbed.operator_term.endpoint import SYSTEM, Endpoint, serving
from testbed.operator_term.term import until
from tests.integration.test_console import output
from tests.integration.test_queue_outlook import ANSWER, ASKED, PATH

TICKETS = "/apis/bireme.dev/v1alpha1/tickets"
TOKEN = "hush-hush"  # noqa: S105  # of the test
OF_ANN: dict[str, Any] = {
    "username": "ann",
    "groups": ["readers", "staff"],
    "extra": {"team": ["nlp"]},
}


@asynccontextmanager
async def standby(api: FakeApi, folder: Path) -> AsyncIterator[Endpoint]:
    """The endpoints of a process that does not lead: 503 is the answer to who is known."""
    async with serving(api, folder, None) as endpoint:
        yield endpoint


def stored(api: FakeApi) -> list[str]:
    return [name for _, name in api.store.collection(TICKETS).objects]


async def test_ticket_is_good_for_its_secret_and_for_minutes(api: FakeApi, tmp_path: Path) -> None:
    async with standby(api, tmp_path) as asked:
        header = asked.new_ticket("ann")
        assert (await asked.present(header))[0] == 503
        name, _, secret = header.partition(".")
        for forged in ("", name, f"{name}.", f"{name}.x", f"other.{secret}", f"{name}.{'x' * 999}"):
            code, body = await asked.present(forged)
            assert (code, body["reason"]) == (401, "Unauthorized"), forged
        asked.tickets.now = lambda: asked.now() + MAX_AGE_SECONDS + 5
        code, body = await asked.present(header)
        assert (code, "s old, and good for 300" in body["message"]) == (401, True)
        asked.tickets.now = lambda: asked.now() - 120
        assert (await asked.present(header))[0] == 401, "of the future"


async def test_no_ticket_is_believed_where_the_api_server_admits_forged_ones(
    api: FakeApi, tmp_path: Path
) -> None:
    in_force, api.answers.policies = api.answers.policies, ()
    async with standby(api, tmp_path) as asked:
        api.store.now = lambda: "2030-01-01T00:00:00Z"
        header = asked.new_ticket("root")
        code, body = await asked.present(header)
        assert (code, "admits forged tickets" in body["message"]) == (503, True)
        assert stored(api) == [header.partition(".")[0]], "forging was tried, and wrote nothing"
        api.answers.policies = in_force
        api.store.now = lambda: "2030-01-01T00:00:01Z"
        code, body = await asked.present(header)
        assert (code, "before the policy" in body["message"]) == (401, True)
        header = asked.new_ticket("ann")
        code, body = await asked.present(header)
        assert (code, "does not lead" in body["message"]) == (503, True)
        # A refusal that is none of the policy on tickets proves nothing, nor does what was before.
        for words in ("no", "ValidatingAdmissionPolicy 'names' denied request: no such name"):
            asked.clock.advance(61.0)
            api.faults.add(
                Fault(status=403, reason="Forbidden", message=words),
                lambda method, _, __: method == DRY_RUN,
                times=1,
            )
            code, body = await asked.present(header)
            assert (code, "whether tickets are genuine" in body["message"]) == (503, True)
        api.store.now = lambda: "2030-01-01T00:00:02Z"
        assert (await asked.present(header))[0] == 401


async def test_secrets_of_nobody_hold_up_nobody_and_cost_few_lookups(
    api: FakeApi, tmp_path: Path
) -> None:
    async with standby(api, tmp_path) as asked:
        header = asked.new_ticket("ann")
        forged = [asked.present(f"none-{number}.x") for number in range(200)]
        loop = asyncio.get_running_loop()
        start = loop.time()
        codes = [code for code, _ in await asyncio.gather(*forged, asked.present(header))]
        assert codes == [*[401] * 200, 503]
        assert 1.1 < loop.time() - start < 10, "sixteen at once, a tenth of a second each"
        before = api.requests.total()
        for name in ("..", "a%2F..", "a/b", "A", "a\u00e4", "-"):
            assert (await asked.present(f"{name}.x"))[0] == 401, name
        assert api.requests.total() == before, "none of these comes into a path"


async def test_tickets_of_one_account_close_the_endpoints_for_nobody(
    api: FakeApi, tmp_path: Path
) -> None:
    large = {"annotations": {"x": "y" * 256 * 1024}}
    async with standby(api, tmp_path) as asked:
        for number in range(300):
            name = names.path("tickets", SYSTEM, f"a-{number}")
            spec = {"user": "eve", "secretDigest": "0" * 64}
            api.put(name, {"metadata": large, "spec": spec})
        assert (await asked.present(asked.new_ticket("ann")))[0] == 503
        assert (await asked.present("a-1.x"))[0] == 401, "it is larger than any ticket"
        assert api.requests["GET", TICKETS] == 2, "by name, however many a user has"


async def test_accounts_of_a_namespace_share_their_limit_and_others_have_their_own(
    api: FakeApi, tmp_path: Path
) -> None:
    account = "system:serviceaccount:red:bot-{}"
    async with standby(api, tmp_path) as asked:
        headers = [asked.new_ticket(account.format(number)) for number in range(12)]
        codes = []
        for header in headers:
            asked.clock.advance(-1.0)
            codes.append((await asked.present(header))[0])
        assert codes == [*[503] * 10, 429, 429]
        for who in ("system:serviceaccount:blue:bot", "red"):
            asked.clock.advance(-1.0)
            assert (await asked.present(asked.new_ticket(who)))[0] == 503


async def test_old_tickets_are_deleted_by_the_leader_alone_past_those_that_stay(
    api: FakeApi, tmp_path: Path
) -> None:
    async with standby(api, tmp_path) as asked:
        for _ in range(60):
            asked.new_ticket("eve")
        kept, ending = stored(api)[:55], stored(api)[55]
        held = api.store.collection(TICKETS).objects[SYSTEM, ending]
        api.put(
            names.path("tickets", SYSTEM, ending),
            {**held, "metadata": {**held["metadata"], "finalizers": ["x/y"]}},
        )
        api.faults.add(
            Fault(status=403, reason="Forbidden"),
            lambda method, path, _: method == "DELETE" and path.rpartition("/")[2] in kept,
            times=None,
        )
        asked.tickets.now = lambda: asked.now() + 1000
        await asked.present("none.x")
        assert len(stored(api)) == 60
        asked.tickets.cleans = lambda: True
        await asked.present("none.x")
        await until(lambda: stored(api) in (kept, [*kept, ending]))


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    api.token, api.answers.user = TOKEN, OF_ANN
    path = tmp_path / "ann.json"
    path.write_text(json.dumps(kubeconfig_of(api.url, TOKEN)))
    return str(path)


async def test_command_sends_a_ticket_of_its_user_and_never_their_token(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The request that reaches the operator is recorded behind the API server's proxy."""
    received: list[dict[str, Any]] = []

    def record(request: web.Request) -> None:
        if request.path == PATH:
            tickets = list(api.store.collection(TICKETS).objects.values())
            received.append({"headers": dict(request.headers), "tickets": tickets})

    api.on_request = record
    api.documents[PATH] = ANSWER
    code, _, err = await output(capsys, *ASKED, kubeconfig)
    assert code == 0, err
    (seen,) = received
    (ticket,) = seen["tickets"]
    assert ticket["metadata"]["namespace"] == SYSTEM
    spec = ticket["spec"]
    assert (spec["user"], spec["groups"]) == ("ann", OF_ANN["groups"])
    assert spec["extra"] == OF_ANN["extra"]
    # Of Authorization the real proxy passes nothing on.
    headers = {k: v for k, v in seen["headers"].items() if k != "Authorization"}
    assert TOKEN not in json.dumps(headers) + json.dumps(ticket)
    assert headers[TICKET_HEADER].startswith(ticket["metadata"]["name"] + ".")
    assert stored(api) == [], "deleted after the answer"
    # The operator takes the user from it.
    api.put(names.path("tickets", SYSTEM, ticket["metadata"]["name"]), {"spec": spec})
    api.token = None
    async with standby(api, tmp_path) as asked:
        user = await asked.tickets.user(headers[TICKET_HEADER])
    assert (user.name, user.groups) == ("ann", ("readers", "staff"))
    assert user.extra == {"team": ("nlp",)}


async def test_command_says_which_right_is_missing(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    asked = (*ASKED, kubeconfig)
    words = 'tickets.bireme.dev is forbidden: User "ann" cannot create resource "tickets"'
    api.faults.add(
        Fault(status=403, reason="Forbidden", message=words),
        lambda method, path, _: method == "POST" and path.endswith("/tickets"),
    )
    code, _, err = await output(capsys, *asked)
    assert code == 1
    assert "you may not create tickets.bireme.dev in namespace bireme-system" in err
    assert "ask for the Role bireme-outlook there" in err
    api.remove(TICKETS)
    code, _, err = await output(capsys, *asked)
    assert (code, "the cluster serves no tickets.bireme.dev" in err) == (1, True)


async def test_command_creates_its_ticket_again_where_its_credentials_were_renewed_meanwhile(
    api: FakeApi, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.documents[PATH] = ANSWER
    words = "ValidatingAdmissionPolicy 'x' denied request: a ticket names its own creator: spec"
    api.faults.add(
        Fault(status=403, reason="Forbidden", message=words),
        lambda method, path, _: method == "POST" and path.endswith("/tickets"),
        times=1,
    )
    code, _, err = await output(capsys, *ASKED, kubeconfig)
    assert code == 0, err


async def test_command_creates_another_ticket_where_the_operator_does_not_believe_the_first(
    api: FakeApi,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader, "_TICKET_PAUSE_SECONDS", 0.01)
    api.documents[PATH] = ANSWER
    early = Fault(status=401, reason="Unauthorized", message="too early; create another one")
    # The client itself sends once more what gets a 401.
    api.faults.add(early, lambda _, path, __: path == PATH, times=2)
    code, _, err = await output(capsys, *ASKED, kubeconfig)
    assert code == 0, err
    assert api.requests["POST", TICKETS] == 2
    api.faults.add(early, lambda _, path, __: path == PATH, times=None)
    code, _, err = await output(capsys, *ASKED, kubeconfig)
    assert (code, "too early; create another one" in err) == (1, True)
    assert stored(api) == []


async def test_client_of_the_operator_is_never_sent_a_token(api: FakeApi, tmp_path: Path) -> None:
    """A header with a token of the cluster is no way in any more, whatever its name."""
    client = await ApiClient.connect(api.kubeconfig(tmp_path))
    try:
        async with standby(api, tmp_path) as asked:
            for header in ("Authorization", "Bireme-Token"):
                code, _ = await asked._get({header: f"Bearer {TOKEN}"}, ())
                assert code == 401
        assert api.requests["POST", "/apis/authentication.k8s.io/v1/tokenreviews"] == 0
    finally:
        await client.close()
