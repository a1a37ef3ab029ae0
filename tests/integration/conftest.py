"""A fake API server and a client connected to it, for every integration test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bireme.kube.client import ApiClient
from fakeapi import FakeApi
from kubeobjects.policy_terms import train
from promserver.programs import Programs, Unavailable, find_programs
from smallnets import encoders


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as served:
        yield served


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[ApiClient]:
    connected = await ApiClient.connect(api.kubeconfig(tmp_path))
    yield connected
    await connected.close()


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Path]:
    """A folder of small checkpoints, whose encoders are known for the time of the test."""
    with encoders.known():
        yield train(tmp_path / "trained")


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus and its tool; tests that need them are skipped where there are none."""
    try:
        return find_programs()
    except Unavailable as error:
        pytest.skip(f"no Prometheus: {error}")
