"""The places kept for gangs that wait: asked of a leader by readers of different rights, and drawn.

A reader is told of the gangs that they may read alone.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bireme.cli import leader
from bireme.cli.cluster import ClusterReader
from bireme.cli.ui.drawing import colours, domains
from bireme.cli.ui.live import Live
from bireme.core.gpus import GPU
from bireme.kube import names
from bireme.kube.client import ApiClient
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.endpoint import serving, whole
from testbed.operator_term.term import furnish, leading, status, submit, until

PROXY = "/api/v1/namespaces/bireme-system/services/bireme-outlook:outlook/proxy/v1/outlook"


async def told(endpoint: Any, who: str, *namespaces: str) -> dict[str, Any]:
    """What is kept, by gang and node, as ``who`` is told."""
    code, body = await endpoint.ask(who, *namespaces)
    assert code == 200, body
    return {f"{e['namespace']}/{e['name']}": e["reserved"] for e in body["gangs"]}


@asynccontextmanager
async def looking(api: FakeApi, folder: Path) -> AsyncIterator[Live]:
    """The board of the cluster, before a reader with a token."""
    parser = argparse.ArgumentParser()
    leader.add_leader(parser)
    options = parser.parse_args([])
    options.user = None
    client = await ApiClient.connect(api.kubeconfig(folder))
    live = Live(ClusterReader(client, "red"), options, "cluster")
    try:
        await live.start()
        yield live
    finally:
        await live.close()
        await client.close()


async def test_places_are_told_to_who_may_read_the_gang_and_drawn_on_its_nodes(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.answers.readers = {"root": {""}, "ann": {"red"}, "bob": {"blue"}}
    async with FakeKubelets(api, runs), leading(api, tmp_path, outlook=True) as term:
        submit(api, whole("runs"))
        await until(lambda: status(api, "runs").get("phase") == "Running")
        api.put(names.path("trainingjobs", "red", "first"), whole("first", "red"))

        def is_kept() -> bool:
            current = term.outlooks.current if term.outlooks is not None else None
            return current is not None and any(h.reservation for h in current.decision.held)

        await until(is_kept)
        async with serving(api, tmp_path, term) as endpoint:
            all_of_it = await told(endpoint, "root")
            ((gang, nodes),) = all_of_it.items()
            ((node, devices),) = nodes.items()
            assert (gang, devices) == ("red/first", {GPU: 8})
            assert await told(endpoint, "ann") == all_of_it
            assert await told(endpoint, "bob") == {}
            assert await told(endpoint, "root", "blue") == {}
            _, api.documents[PROXY] = await endpoint.ask("root")

    async with looking(api, tmp_path) as live:
        view = live.view()
        assert view.kept_unknown == ""
        (row,) = (each for each in view.nodes if each.kept_for)
        assert (row.name, row.kept_for, row.idle_reserved) == (node, {"red/first": 8}, 0)
        ((_, (tile,)),) = domains([row], colours(view))
        assert all(kind.endswith(" due") for kind, _, _ in tile.cells), "in use still"
        assert tile.text.endswith("reserved for red/first 8")
        first = view.line_of(("red", "first"))
        assert first is not None
        assert live.devices_reserved_on(first) == {node: 8}, "for who may not list nodes"
    del api.documents[PROXY]
    async with looking(api, tmp_path) as live:
        assert live.view().kept_unknown.startswith("cannot read the outlook: there is no Serv")
        assert "set operator.settings.outlook to true" in live.view().kept_unknown
