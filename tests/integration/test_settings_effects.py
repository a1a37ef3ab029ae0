"""Settings do what they say: each has one effect that a running operator shows.

:data:`SHOWN` plays a short life of a cluster twice, with the default and with another value, and
says what is seen both times. :data:`ELSEWHERE` names a test that shows the effect and sets the
setting. A setting or a field of a Queue without an entry fails here.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from pydantic.alias_generators import to_camel

from bireme.core.settings import SchedulingSettings
from bireme.kube import crd, names, quantities
from bireme.kube.api.queues import QueueResource, QueueSpec
from bireme.replay.outlook_reply import PATH
from bireme.settings_source import setting_sections
from bireme.testing import a_node
from bireme_operator.leader import LeaderTerm
from bireme_operator.settings import OperatorSettings
from testbed.controlplane.process import free_ports
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import PODS, job, leading, silence, status, submit, until
from testbed.scenario.manifests import (
    Manifest,
    priority_class,
    queue,
    task,
    training_job,
)

ROOT: Final = Path(__file__).parents[2]
BEGAN: Final = 1.9e9
DAY: Final = 86_400.0
RAN: Final = 2000.0
"""Seconds that the running job has run when a newcomer comes."""
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass
class World:
    """A fake cluster in which one node of 8 GPUs is, and what differs from the defaults."""

    api: FakeApi
    folder: Path
    scheduling: Mapping[str, Any]
    operator: Mapping[str, Any]
    queue: Mapping[str, Any]
    epoch: int = 0

    def at(self, moment: float) -> None:
        """Let objects be created at ``moment``, in seconds after the beginning."""
        self.api.store.now = lambda: quantities.format_timestamp(BEGAN + moment)

    def put_node(self, name: str, **facts: Any) -> None:
        self.api.put(f"/api/v1/nodes/{name}", node_manifest(a_node(name, 8, **facts)))

    @asynccontextmanager
    async def leading(self, moment: float = 0.0, **more: Any) -> AsyncIterator[LeaderTerm]:
        """Lead at ``moment``, which stands still within the block."""
        self.at(moment)
        self.epoch += 1
        settings = SchedulingSettings(**self.scheduling)
        options = {"epoch": self.epoch, "now": lambda: BEGAN + moment, **more, **self.operator}
        async with leading(self.api, self.folder, scheduling=settings, **options) as term:
            yield term

    async def reason(self, name: str) -> str:
        """Wait until the operator has said something of a job, and return the word."""
        await until(lambda: status(self.api, name).get("reason"))
        return str(status(self.api, name)["reason"])

    async def running(self, name: str) -> None:
        await until(lambda: status(self.api, name).get("phase") == "Running")


Show = Callable[[World], Awaitable[object]]


def wide(name: str, gpus: int = 8, **spec: Any) -> Manifest:
    return training_job(name, task("worker", 1, gpus=gpus), **spec)


# --- what is seen of a cluster --------------------------------------------------------------------


async def factors(world: World) -> object:
    """Weight and value of the four factors of a job that has waited for half a day."""
    submit(world.api, wide("runs"))
    async with world.leading():
        await world.reason("runs")
        submit(world.api, wide("waits", priorityClassName="urgent"))
        await world.reason("waits")
    async with world.leading(DAY / 2):
        await until(lambda: _factors(world).get("wait", (0, 0))[1] > 0)
    return _factors(world)


def _factors(world: World) -> dict[str, tuple[float, float]]:
    found = status(world.api, "waits").get("priority", {}).get("factors", ())
    return {each["name"]: (each["weight"], each["value"]) for each in found}


def factor(name: str) -> Show:
    async def show(world: World) -> object:
        return (await factors(world))[name]  # type: ignore[index]

    return show


def stops(
    newcomer: Mapping[str, Any] | None = None,
    runner: Mapping[str, Any] | None = None,
    waited: float = 0.0,
) -> Show:
    """Return what tells whether a job that has run for 2000 s is stopped for a newcomer."""

    async def show(world: World) -> object:
        submit(world.api, wide("runs", **(runner or {})))
        async with FakeKubelets(world.api, runs):
            async with world.leading():
                await world.running("runs")
            world.at(RAN - waited)
            submit(world.api, wide("new", **{"priorityClassName": "urgent", **(newcomer or {})}))
            if waited:
                async with world.leading(RAN - waited):
                    await world.reason("new")
            async with world.leading(RAN, template_check_seconds=0.0):
                await world.reason("new")
                await silence(world.api)
                return bool(status(world.api, "runs").get("preemptions"))

    return show


def line(after: float = DAY + 3600.0, old: int = 1, gpus: int = 8, **spec: Any) -> Show:
    """Return what says in which order jobs wait, the ``old`` ones for longer than a day."""

    async def show(world: World) -> object:
        submit(world.api, wide("runs"))
        async with FakeKubelets(world.api, runs):
            async with world.leading():
                await world.running("runs")
                olds = [f"old-{n}" for n in range(old)]
                submit(world.api, *(wide(name, gpus, **spec) for name in olds))
                for name in olds:
                    await world.reason(name)
            world.at(after)
            submit(world.api, wide("urgent", priorityClassName="urgent"))
            async with world.leading(after):
                await until(
                    lambda: sorted(_positions(world, *olds, "urgent")) == [*range(1, old + 2)]
                )
        place = _positions(world, "urgent")[0]
        return f"urgent is number {place}"

    return show


def _positions(world: World, *jobs: str) -> list[int]:
    return [status(world.api, name).get("queuePosition", 0) for name in jobs]


def reason_of(*jobs: Manifest, last: str) -> Show:
    """Return what tells the reason of the job ``last``, submitted after all others."""

    async def show(world: World) -> object:
        for number, each in enumerate(jobs):
            world.at(number - len(jobs))
            submit(world.api, each)
        async with world.leading():
            return await world.reason(last)

    return show


def nodes_of(*jobs: Manifest, more: Mapping[str, Mapping[str, str]]) -> Show:
    """Return what tells the nodes of the jobs, with ``more`` nodes by name and labels."""

    async def show(world: World) -> object:
        for name, labels in more.items():
            world.put_node(name, labels=labels)
        submit(world.api, *jobs)
        found = {}
        async with world.leading():
            for each in jobs:
                name = each["metadata"]["name"]
                await until(lambda name=name: status(world.api, name).get("plan"))  # type: ignore[misc]
                placements = status(world.api, name)["plan"]["placements"]
                found[name] = sorted(p["node"] for p in placements)
        return found

    return show


async def pods_environment(world: World) -> object:
    """Variables and volumes that a replica has for its reports."""
    submit(world.api, wide("job"))
    async with world.leading():
        await until(lambda: world.api.store.collection(PODS).objects)
    (pod,) = world.api.store.collection(PODS).objects.values()
    variables = {e["name"] for e in pod["spec"]["containers"][0].get("env", ())}
    maps = [
        source["configMap"]["name"]
        for volume in pod["spec"].get("volumes", ())
        for source in volume.get("projected", {}).get("sources", ())
        if "configMap" in source
    ]
    return any("PROGRESS" in name for name in variables), maps


async def records(world: World) -> object:
    """How many files a record has after a job."""
    folder = world.folder / "records"
    folder.mkdir()
    if world.operator.get("record_directory"):
        world.operator = {**world.operator, "record_directory": str(folder)}
    async with world.leading():
        submit(world.api, wide("job"))
        await world.reason("job")
    return len([*folder.rglob("*.jsonl")])


# --- what is seen of a program --------------------------------------------------------------------


def program(*what: str) -> Show:
    """Return what starts the operator as a program and tells ``what`` is seen of it."""

    async def show(world: World) -> object:
        (port,) = free_ports(1)
        chosen = {"metrics_address": f"127.0.0.1:{port}", **world.operator}
        env = {f"BIREME_{name.upper()}": str(value) for name, value in chosen.items()}
        env = {**os.environ, **env, "KUBECONFIG": str(world.api.kubeconfig(world.folder))}
        command = (sys.executable, "-m", "bireme_operator")
        running = await asyncio.create_subprocess_exec(
            *command, env=env, stderr=asyncio.subprocess.PIPE
        )
        try:
            submit(world.api, wide("job"))
            if chosen.get("mode") != "Observe":
                await until(
                    lambda: job(world.api, "job").get("status") or running.returncode is not None
                )
            else:
                await until(lambda: world.api.open_watches(names.path("trainingjobs")))
            seen = await _seen_of(world, chosen, port, what)
        finally:
            if running.returncode is None:
                running.terminate()
            _, logged = await running.communicate()
        if "info lines" in what:
            seen["info lines"] = b'"info"' in logged
        return seen

    return show


async def _seen_of(
    world: World, chosen: Mapping[str, Any], port: int, what: tuple[str, ...]
) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    leases = world.api.store.collection("/apis/coordination.k8s.io/v1/leases").objects
    found = [namespace for namespace, name in leases if "operator" in name]
    if "lease" in what:
        seen["lease"] = found
    if "has lease" in what:
        seen["has lease"] = bool(found)
    if "records" in what:
        seen["records"] = bool([*Path(chosen["record_directory"] or "/nowhere").glob("**/*")])
    async with aiohttp.ClientSession() as session:
        for each in what:
            if each.startswith("/"):
                address = chosen["metrics_address"] or f"127.0.0.1:{port}"
                seen[each] = await _status_of(session, f"http://{address}{each}")
    return seen


async def _status_of(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(10)) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


# --- every setting --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """What ``show`` sees ``before``, by default, and ``after``, with ``value``.

    ``beside`` are scheduling settings, ``operator`` settings of the operator, that both have.
    """

    show: Show
    value: Any
    before: object
    after: object
    beside: Mapping[str, Any] = field(default_factory=dict)
    operator: Mapping[str, Any] = field(default_factory=dict)


KEPT: Final = {"preemption": False}
EQUAL: Final[Mapping[str, Any]] = {"priorityClassName": "same"}
RESUMABLE: Final[Mapping[str, Any]] = {"runPolicy": {"resumable": True}}
V100: Final = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
R100: Final = {"nvidia.com/gpu.product": "NVIDIA-R100"}

SHOWN: Final[dict[str, Shown]] = {
    # Of what decides.
    "user_weight": Shown(factor("userPriority"), 0.9, (0.35, 0.5), (0.5806, 0.5), KEPT),
    "job_weight": Shown(factor("jobPriority"), 0.9, (0.35, 0.9091), (0.5806, 0.9091), KEPT),
    "wait_weight": Shown(factor("wait"), 0.9, (0.15, 0.5), (0.5143, 0.5), KEPT),
    "parallelism_weight": Shown(factor("parallelism"), 0.9, (0.15, 0.1111), (0.5143, 0.1111), KEPT),
    "preemption": Shown(stops(), False, True, False),
    "min_runtime_seconds": Shown(stops(), 3000, True, False),
    "max_min_runtime_seconds": Shown(
        stops(runner={"runPolicy": {"minRuntimeSeconds": 3000}}), 600, False, True
    ),
    "eviction_budget": Shown(stops(), 0, True, False, {"eviction_backoff_seconds": 0}),
    "eviction_backoff_seconds": Shown(stops(), 600, False, True, {"eviction_budget": 0}),
    "wait_bound_seconds": Shown(line(), 200_000, "urgent is number 2", "urgent is number 1", KEPT),
    "overdue_share": Shown(
        line(old=2, gpus=4), 1.0, "urgent is number 2", "urgent is number 3", KEPT
    ),
    "gpu_models": Shown(
        nodes_of(wide("job"), more={"a": V100, "b": R100}),
        *(("R100=0.01:20",), {"job": ["b"]}, {"job": ["a"]}),
    ),
    "service_threshold": Shown(stops(EQUAL, RESUMABLE, waited=400.0), 0, True, False),
    "preemption_cost_seconds": Shown(
        stops(EQUAL, {**RESUMABLE, "estimatedDuration": "40m"}, waited=400.0), 0, False, True
    ),
    # Of how it carries that out.
    "record_directory": Shown(records, "here", 0, 1),
    # Of the program.
    "mode": Shown(program("has lease"), "Observe", {"has lease": True}, {"has lease": False}),
    "lease_namespace": Shown(
        program("lease"), "elsewhere", {"lease": ["default"]}, {"lease": ["elsewhere"]}
    ),
    "metrics_address": Shown(program("/readyz"), "", {"/readyz": 200}, {"/readyz": 0}),
    "debug_dump": Shown(program("/debug/dump"), True, {"/debug/dump": 404}, {"/debug/dump": 401}),
    "outlook": Shown(program(PATH), True, {PATH: 404}, {PATH: 401}),
    "log_level": Shown(program("info lines"), "error", {"info lines": True}, {"info lines": False}),
    "progress_url": Shown(pods_environment, "http://here:8082", (False, []), (True, [])),
    "progress_ca_config_map": Shown(
        *(pods_environment, "authority", (True, []), (True, ["authority"])),
        operator={"progress_url": "https://here:8082"},
    ),
    # Of a Queue.
    "queue.user_priority": Shown(factor("userPriority"), 90, (0.35, 0.5), (0.35, 0.9), KEPT),
    "queue.wait_bound_seconds": Shown(
        line(), 200_000, "urgent is number 2", "urgent is number 1", KEPT
    ),
    "queue.max_min_runtime_seconds": Shown(
        stops(runner={"runPolicy": {"minRuntimeSeconds": 3000}}), 600, False, True
    ),
    "queue.limit": Shown(
        reason_of(wide("first", 4), wide("second", 4), last="second"),
        *({"nvidia.com/gpu": 4}, "Admitted", "OverQueueLimit"),
    ),
    "queue.state": Shown(reason_of(wide("job"), last="job"), "Closed", "Admitted", "QueueClosed"),
    "queue.parent": Shown(reason_of(wide("job"), last="job"), "none", "Admitted", "QueueInvalid"),
    "queue.namespace_selector": Shown(
        *(reason_of(wide("job"), last="job"), {"matchLabels": {"team": "a"}}),
        *("Admitted", "QueueForbidden"),
    ),
}

_FAILED_STARTS: Final = "tests/integration/test_operator_failed_starts.py"

ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "progress_address": (
        (
            "tests/integration/test_progress_tls.py::"
            "test_the_operator_serves_progress_at_its_address_with_the_certificate_of_its_folder"
        ),
        "progress_address",
    ),
    "orderer": ("tests/integration/test_operator_policy_swaps.py", "orderer"),
    "placer": (
        (
            "tests/integration/test_operator_policies.py::"
            "test_a_changed_parameter_changes_where_a_job_goes_and_a_bad_one_nothing"
        ),
        "placer",
    ),
    "sizer": ("tests/integration/test_operator_policy_swaps.py", "sizer"),
    "topology_levels": ("tests/unit/heuristics/test_packing.py", "topology"),
    "node_pool_label": (
        (
            "tests/unit/rl/test_choosers.py::"
            "test_node_pools_are_those_of_the_label_and_one_of_nodes_without_it"
        ),
        "node_pool_label",
    ),
    "resize_settle_seconds": (
        (
            "tests/unit/lab/simulator/test_engine_elastic.py::"
            "test_gang_waits_until_the_elastic_one_has_kept_its_size_long_enough"
        ),
        "resize_settle_seconds",
    ),
    "budget_override_priority": (
        (
            "tests/integration/test_operator_preemption.py::"
            "test_from_some_priority_on_budgets_do_not_hold_but_others_go_first"
        ),
        "budget_override_priority",
    ),
    "bind_timeout_seconds": (
        (
            f"{_FAILED_STARTS}::"
            "test_silence_about_one_job_while_others_are_bound_is_its_own_failed_start"
        ),
        "bind_timeout_seconds",
    ),
    "start_timeout_seconds": (
        f"{_FAILED_STARTS}::test_a_gang_whose_image_cannot_be_pulled_gives_its_places_back_in_time",
        "startTimeoutSeconds",
    ),
    "node_lost_seconds": (
        (
            "tests/integration/test_operator_endings.py::"
            "test_a_pod_keeps_its_grace_until_its_node_is_lost"
        ),
        "node_lost_seconds",
    ),
    "stalled_after_seconds": (
        (
            "tests/integration/test_operator_metrics.py::"
            "test_what_a_gang_holds_loses_and_does_not_use_is_counted"
        ),
        "stalled_after_seconds",
    ),
    "checkpoint_directory": (
        (
            "tests/integration/test_operator_policies.py::"
            "test_a_checkpoint_resizes_a_running_job_as_the_library_predicts"
        ),
        "trained",
    ),
    "accelerators": ("tests/unit/core/test_accelerators.py", "accelerators="),
    "gpu_units": ("tests/integration/test_operator_queue_limits.py", "gpu_units="),
    "max_grace_seconds": ("tests/unit/operator/test_pending_actions.py", "max_grace_seconds"),
    "assume_resumable": ("tests/integration/test_operator_resumable.py", "assume_resumable"),
    "service_half_life_seconds": (
        "tests/unit/lab/simulator/test_tenants.py",
        "service_half_life_seconds",
    ),
    "queue.assume_resumable": ("tests/integration/test_operator_resumable.py", "assumeResumable"),
    "queue.preempt_pod_groups": (
        "tests/integration/test_operator_guest_stops.py",
        "preemptPodGroups",
    ),
    "queue.weight": ("tests/unit/core/test_queue_tree.py", "weight"),
    "queue.guaranteed": (
        (
            "tests/integration/test_operator_preemption.py::"
            "test_a_budget_does_not_keep_a_queue_from_what_it_is_guaranteed"
        ),
        "guaranteed",
    ),
    "queue.start_timeout_seconds": (
        f"{_FAILED_STARTS}::test_a_gang_whose_image_cannot_be_pulled_gives_its_places_back_in_time",
        "startTimeoutSeconds",
    ),
}
"""A test that shows the effect, or the file of several, and the word by which it sets it."""


def every_setting() -> set[str]:
    """Names of all settings of the operator, and of all fields of a Queue."""
    classes = (OperatorSettings, SchedulingSettings)
    settings = {name for cls in classes for name in setting_sections(cls)}
    return settings | {f"queue.{name}" for name in QueueSpec.model_fields}


def test_every_setting_and_every_field_of_a_queue_has_an_entry() -> None:
    tables = (SHOWN, ELSEWHERE)
    entries = [name for table in tables for name in table]
    assert sorted(entries) == sorted(every_setting())


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_test_that_shows_a_setting_is_there_and_sets_it(name: str) -> None:
    place, word = ELSEWHERE[name]
    path, _, test = place.partition("::")
    text = (ROOT / path).read_text()
    assert f"def {test or 'test_'}" in text
    assert word in text


@pytest.mark.parametrize("name", SHOWN)
async def test_setting_has_the_effect_that_its_entry_says(name: str, tmp_path: Path) -> None:
    shown = SHOWN[name]
    assert await played(name, None, tmp_path / "before") == shown.before
    assert await played(name, shown.value, tmp_path / "after") == shown.after


async def played(name: str, value: Any, folder: Path) -> object:
    """Return what is seen with ``value``, or with the default where it is None."""
    shown = SHOWN[name]
    beside, operator, spec = dict(shown.beside), dict(shown.operator), dict[str, Any]()
    if value is not None:
        if name.startswith("queue."):
            spec[to_camel(name.removeprefix("queue."))] = value
        elif name in setting_sections(SchedulingSettings):
            beside[name] = value
        else:
            operator[name] = value
    folder.mkdir()
    async with FakeApi() as api:
        world = World(api, folder, beside, operator, spec)
        world.at(0)
        world.put_node("n0")
        api.put(f"{CLASSES}/urgent", priority_class("urgent", 1000))
        api.put(f"{CLASSES}/same", priority_class("same", 0))
        # As the API server stores it: with the defaults of the definition.
        stored = queue("default", **{**defaults_of_definition(), **spec})
        api.put(f"{names.path('queues')}/default", stored)
        return await shown.show(world)


def defaults_of_definition() -> dict[str, Any]:
    """What the API server writes into the spec of a Queue that says nothing."""
    (kind,) = (each for each in crd.KINDS if each.model is QueueResource)
    (version,) = crd.definition(kind)["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return {name: schema["default"] for name, schema in fields.items() if "default" in schema}


def test_a_default_that_a_setting_states_stands_in_no_queue() -> None:
    settings = {
        to_camel(name)
        for cls in (OperatorSettings, SchedulingSettings)
        for name in setting_sections(cls)
    }
    shared = [name for name in QueueSpec.model_fields if to_camel(name) in settings]
    assert {"wait_bound_seconds", "start_timeout_seconds", "max_min_runtime_seconds"} <= {*shared}
    for name in shared:
        assert QueueSpec.model_fields[name].default is None, name
        assert to_camel(name) not in defaults_of_definition(), name
