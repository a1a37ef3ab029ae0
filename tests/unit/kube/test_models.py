"""The API models: reading manifests, defaults, small computations, index ranges."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bireme.core.nodes import HOSTNAME_LABEL
from bireme.kube import names
from bireme.kube.api.base import Resource
from bireme.kube.api.plan import NodePlacement, Plan, compress, expand
from bireme.kube.api.queues import LabelSelector, QueueResource
from bireme.kube.api.training_job import TrainingJobSpec, TrainingJobStatus
from bireme.kube.crd import KINDS

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
MODELS: dict[str, type[Resource]] = {kind.name: kind.model for kind in KINDS}
INDICES = st.sets(st.integers(0, 9_999), max_size=300)


def task(**fields: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    return {"name": "worker", "role": "worker", "replicas": 2, "template": template, **fields}


def spec(*tasks: dict[str, Any], **fields: Any) -> TrainingJobSpec:
    return TrainingJobSpec.model_validate({"tasks": tasks or [task()], **fields})


def our_examples() -> Iterator[Any]:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest["apiVersion"] == names.API_VERSION:
                yield pytest.param(manifest, id=f"{path.stem}-{manifest['metadata']['name']}")


@pytest.mark.parametrize("manifest", list(our_examples()))
def test_an_example_reads_and_its_pod_templates_come_back_unchanged(
    manifest: dict[str, Any],
) -> None:
    resource = MODELS[manifest["kind"]].model_validate(manifest)

    written = resource.to_manifest()
    assert written["metadata"] == manifest["metadata"]
    for read, given_task in zip(
        written["spec"].get("tasks", ()), manifest["spec"].get("tasks", ()), strict=True
    ):
        assert read["template"]["spec"].items() >= given_task["template"]["spec"].items()


def test_a_job_gets_the_defaults_of_the_api() -> None:
    job = spec()

    assert (job.queue, job.rendezvous, job.min_available) == (None, "none", None)
    assert (job.role_affinity.mode, job.role_affinity.topology_key) == ("Preferred", HOSTNAME_LABEL)
    assert (job.run_policy.backoff_limit, job.run_policy.clean_pod_policy) == (3, "Running")
    assert not job.run_policy.suspend


def test_a_typing_error_in_a_field_name_is_refused_by_its_path() -> None:
    with pytest.raises(ValidationError, match=r"minAvailble\n.*Extra inputs are not permitted"):
        spec(minAvailble=2)
    with pytest.raises(ValidationError, match=r"tasks\.0\.replica\n"):
        spec(task(replica=3))


def test_an_older_operator_reads_past_a_newer_field() -> None:
    manifest = {"tasks": [task()], "fromTheFuture": 1}

    assert TrainingJobSpec.model_validate(manifest, extra="ignore").tasks[0].replicas == 2


def test_unknown_fields_of_a_pod_are_carried_through() -> None:
    pod = {
        "containers": [{"name": "main", "resizePolicy": [{"resourceName": "cpu"}]}],
        "fieldOfTomorrow": {"deep": [1, None, "x"]},
    }

    template = spec(task(template={"spec": pod})).tasks[0].template

    assert template.spec.to_manifest() == pod


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"replicas": 0}, id="no-replicas"),
        pytest.param({"replicas": 10**9}, id="a-billion-replicas"),
        pytest.param({"replicas": "two"}, id="replicas-in-words"),
        pytest.param({"minReplicas": 0}, id="no-minimum"),
        pytest.param({"name": "wörker"}, id="unicode-name"),
        pytest.param({"name": "worker\n"}, id="newline-in-name"),
        pytest.param({"name": "w" * 21}, id="long-name"),
        pytest.param({"name": "0worker"}, id="name-from-a-digit"),
        pytest.param({"role": "boss"}, id="unknown-role"),
        pytest.param({"priority": 1001}, id="priority-too-high"),
        pytest.param({"template": {"spec": {"containers": []}}}, id="no-containers"),
    ],
)
def test_a_task_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"tasks\.0\.{next(iter(fields))}"):
        spec(task(**fields))


@pytest.mark.parametrize("value", ["-1", "many", "1E30", True])
def test_an_uncountable_request_is_refused_with_the_name_of_the_resource(value: object) -> None:
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": value}}}

    with pytest.raises(ValidationError, match=r"nvidia\.com/gpu"):
        spec(task(template={"spec": {"containers": [container]}}))


def test_a_resource_name_with_a_control_character_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"'cpu\\n' is no resource name"):
        QueueResource.model_validate({"spec": {"limit": {"cpu\n": 1}}})


def test_a_status_is_written_without_nulls_and_with_utc_times() -> None:
    status = TrainingJobStatus(
        phase="Running", start_time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), wait_seconds=7
    )

    assert status.to_manifest() == {
        "phase": "Running",
        "conditions": [],
        "tasks": [],
        "startTime": "2026-01-02T03:04:05Z",
        "waitSeconds": 7,
    }


def test_a_plan_of_ten_thousand_replicas_stays_far_below_the_size_limit() -> None:
    placements = tuple(
        NodePlacement(
            node=f"gpu-{low // 8:04}", task="worker", indices=compress(range(low, low + 8))
        )
        for low in range(0, 10_000, 8)
    )
    plan = Plan(
        epoch=1,
        attempt=0,
        spec_hash="0" * 64,
        queue="default",
        mode="Pinned",
        planned_time=datetime(2026, 1, 1, tzinfo=UTC),
        placements=placements,
    )

    assert len(plan.model_dump_json()) < 128 * 1024
    assert Plan.model_validate(plan.to_manifest()) == plan


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param({}, True, id="empty-selects-all"),
        pytest.param({"matchLabels": {"team": "a"}}, True, id="equal"),
        pytest.param({"matchLabels": {"team": "b"}}, False, id="unequal"),
        pytest.param({"matchLabels": {"other": ""}}, False, id="absent-is-not-empty"),
        pytest.param({"key": "team", "operator": "In", "values": ["a", "b"]}, True, id="in"),
        pytest.param({"key": "team", "operator": "NotIn", "values": ["a"]}, False, id="not-in"),
        pytest.param({"key": "other", "operator": "NotIn", "values": ["a"]}, True, id="not-there"),
        pytest.param({"key": "other", "operator": "In", "values": ["a"]}, False, id="in-absent"),
        pytest.param({"key": "team", "operator": "Exists"}, True, id="exists"),
        pytest.param({"key": "team", "operator": "DoesNotExist"}, False, id="does-not-exist"),
    ],
)
def test_a_label_selector_selects_as_in_kubernetes(
    selector: dict[str, Any], selected: bool
) -> None:
    fields = {"matchExpressions": [selector]} if "key" in selector else selector

    assert LabelSelector.model_validate(fields).selects({"team": "a"}) is selected


@given(INDICES)
def test_indices_come_back_as_they_were(indices: set[int]) -> None:
    assert expand(compress(indices)) == tuple(sorted(indices))


def test_indices_are_written_as_ranges() -> None:
    assert compress([7, 2, 1, 0, 3]) == "0-3,7"
    assert compress([]) == ""
    assert expand("0-3,7") == (0, 1, 2, 3, 7)


@pytest.mark.parametrize(
    "text",
    [
        *("3-1", "1,1", "0-3,2", "5,3", "10000", "0-999999999"),
        *("-1", "1-", "1-2-3", "a", "1,,2", " 1", "1\n", "\uff11"),
        pytest.param("0-9999," * 3, id="the-same-again"),
        pytest.param("9" * 5000, id="a-number-python-will-not-read"),
    ],
)
def test_malformed_or_huge_indices_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^indices: "):
        expand(text)


@pytest.mark.parametrize("indices", [[1, 1], [-1], [10_000]])
def test_indices_that_no_replica_can_have_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="index"):
        compress(indices)
