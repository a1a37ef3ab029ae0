"""A role affinity that could only be ignored is refused on the object."""

import msgspec
import pytest

from bireme.core.reasons import Reason
from bireme.kube import wire
from bireme.kube.training_jobs import JobFacts, from_manifest

LEVELS = ("kubernetes.io/hostname", "topology.bireme.dev/rack")


def read(affinity: dict[str, str], *roles: str) -> JobFacts:
    template = {"spec": {"containers": [{"name": "c"}]}}
    tasks = [
        {"name": f"t{index}", "role": role, "replicas": 1, "template": template}
        for index, role in enumerate(roles)
    ]
    job = {"metadata": {"name": "j"}, "spec": {"roleAffinity": affinity, "tasks": tasks}}
    return from_manifest(
        msgspec.json.decode(msgspec.json.encode(job), type=wire.CustomObject), LEVELS
    )


@pytest.mark.parametrize(
    ("affinity", "roles", "message"),
    [
        pytest.param(
            {"mode": "Required"}, ("ps", "worker", "worker"), "not 1 and 2", id="two worker tasks"
        ),
        pytest.param(
            {"mode": "Required"}, ("ps", "ps", "worker"), "not 2 and 1", id="two ps tasks"
        ),
        pytest.param(
            {"topologyKey": "rack"}, ("ps", "worker"), "topologyKey 'rack'", id="unknown level"
        ),
    ],
)
def test_affinity_that_cannot_be_kept_is_a_fault(
    affinity: dict[str, str], roles: tuple[str, ...], message: str
) -> None:
    fault = read(affinity, *roles).fault

    assert fault is not None
    assert fault[0] is Reason.SPEC_INVALID
    assert message in fault[1]


@pytest.mark.parametrize(
    ("affinity", "roles"),
    [
        ({"mode": "Required", "topologyKey": LEVELS[1]}, ("ps", "worker", "chief")),
        ({"mode": "Preferred"}, ("ps", "worker", "worker")),
        ({"mode": "None", "topologyKey": "rack"}, ("worker",)),
    ],
)
def test_affinity_that_can_be_kept_or_is_only_a_wish_is_taken(
    affinity: dict[str, str], roles: tuple[str, ...]
) -> None:
    assert read(affinity, *roles).fault is None
