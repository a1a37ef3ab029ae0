"""Every place where bytes enter, with bytes that something is wrong with.

Each is read, or refused by the error that is for it; nothing else may come out. How often is a
matter of hypothesis' profile: 25 times here, 1000 in ``make verify``.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.kube.client import ApiError
from testbed.fuzzing.documents import DOCUMENTS
from testbed.fuzzing.mutations import as_json, damaged, mutated
from testbed.fuzzing.watched import OBJECTS, WatchedCluster


@pytest.fixture(scope="module", autouse=True)
def selectors_are_loaded() -> None:
    """The library of device selectors raises Python's recursion limit when it is first used."""
    cluster = WatchedCluster()
    cluster.state.snapshot(0.0)


def test_every_watch_of_the_operator_has_a_good_object() -> None:
    cluster = WatchedCluster()
    assert set(cluster.mirrors) == set(OBJECTS)
    for collection, found in OBJECTS.items():
        assert len(cluster.mirrors[collection].known) == len(found), collection
    cluster.decide()
    assert cluster.state.snapshot(0.0).waiting


@pytest.mark.parametrize("collection", OBJECTS)
@given(data=st.data())
def test_whatever_a_watch_brings_the_cluster_is_decided_on(
    collection: str, data: st.DataObject
) -> None:
    cluster = WatchedCluster()
    manifest: Any = data.draw(st.sampled_from(OBJECTS[collection]))
    with suppress(ApiError):  # such as text that is no Unicode: it ends the stream
        cluster.tell(collection, data.draw(mutated(manifest)), "MODIFIED")
    cluster.decide()
    cluster.tell(collection, manifest, "DELETED")
    cluster.decide()


@pytest.mark.parametrize("collection", OBJECTS)
@given(data=st.data())
def test_whatever_bytes_a_watch_brings_are_taken_or_end_the_stream(
    collection: str, data: st.DataObject
) -> None:
    cluster = WatchedCluster()
    line = b'{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "9"}}}'
    with suppress(ApiError):
        cluster.bring(collection, data.draw(damaged(line)))
    cluster.decide()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_good_document_is_read(name: str) -> None:
    DOCUMENTS[name].read(DOCUMENTS[name].text)


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
def test_whatever_bytes_a_document_has_it_is_read_or_refused(
    name: str, data: st.DataObject
) -> None:
    document = DOCUMENTS[name]
    with suppress(*document.refusals):
        document.read(data.draw(damaged(document.text)))


@pytest.mark.parametrize("name", [name for name, each in DOCUMENTS.items() if each.content])
@given(data=st.data())
def test_whatever_is_wrong_in_a_document_it_is_read_or_refused(
    name: str, data: st.DataObject
) -> None:
    document = DOCUMENTS[name]
    with suppress(*document.refusals):
        document.read(as_json(data.draw(mutated(document.content))))
