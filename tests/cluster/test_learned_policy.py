"""Learned policies on a real control plane: swapped, corrupt, in score mode, and as shadows."""

import operator
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.placement import FreeCapacity
from bireme.core.policy import ScoreQuestion
from bireme.onnx.cards import Parts
from bireme.registry import make_policy
from bireme.replay.reader import RecordedCycle, open_record
from bireme.replay.writer import outline_of
from bireme.rl import encoders, lookup
from bireme.rl.checkpoint import OUTPUTS
from bireme.rl.components import LearnedScorer
from testbed.controlplane.stack import BiremeStack
from testbed.networks import checkpoints, graphs
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, scheduling_policy, task, training_job
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]

NODES = "das-machines/1"
JOBS = "a2c-jobs/1"
SIZES = "rlpto-tasks/1"
RETRY_SECONDS = 30
"""How often what could not be loaded is tried again."""
ONLY = {"share_of_1": 0, "share_of_4": 0}
LOADS = 'bireme_extender_policy_loads_total{outcome="loaded"}'
CALLS = 'bireme_extender_requests_total{outcome="scored",verb="prioritize"}'


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Placers that like the emptiest and the fullest nodes best, an orderer and a sizer."""
    folder = tmp_path_factory.mktemp("trained")
    checkpoints.write(folder / "emptiest", placer=[1.0], place_encoder=NODES)
    checkpoints.write(folder / "fullest", placer=[-1.0], place_encoder=NODES)
    checkpoints.write(folder / "orderer", orderer=[1.0], order_encoder=JOBS)
    inputs = encoders.make("sizer", SIZES).inputs
    more = graphs.always_more(inputs, OUTPUTS["sizer"])
    part = checkpoints.write_part(
        folder / "sizer" / checkpoints.SIZER, more, SIZES, inputs, OUTPUTS["sizer"]
    )
    checkpoints.write_card(folder / "sizer", checkpoints.card("sizer", Parts(sizer=part)))
    return folder


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def stack(
    trained: Path, records: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BiremeStack]:
    """Thirty-two GPUs on four nodes."""
    env = {
        "BIREME_CHECKPOINT_DIRECTORY": str(trained),
        "BIREME_RECORD_DIRECTORY": str(records),
        "BIREME_RESIZE_SETTLE_SECONDS": "1",
    }
    folder, often = tmp_path_factory.mktemp("stack"), {"status_refresh_seconds": 1.0}
    with gpu_stack("learned", folder, env, nodes=4, internals=often) as stack:
        yield stack


@pytest.fixture
def tenant(stack: BiremeStack) -> Iterator[Tenant]:
    with Tenant.staying(stack.cluster, stack.log_tails) as tenant:
        yield tenant
        tenant.cluster.kubectl("delete", "bsp", "--all")


def trained_by(name: str, stage: str = "Active") -> Manifest:
    return scheduling_policy("policy", checkpoint={"name": name}, stage=stage)


def condition_of(tenant: Tenant, condition: str) -> str:
    """A condition of the policy, as ``status reason generation``."""
    status = tenant.status("policy", "SchedulingPolicy")
    found = {c["type"]: f"{c['status']} {c['reason']}" for c in status.get("conditions", ())}
    return f"{found.get(condition, 'Unknown')} {status.get('observedGeneration')}"


def use(tenant: Tenant, name: str, generation: int = 1) -> None:
    """Have the checkpoint ``name`` decide; ``generation`` counts how many were asked for."""
    if generation == 1:
        tenant.create(trained_by(name))
    else:
        tenant.patch("SchedulingPolicy", "policy", {"spec": {"checkpoint": {"name": name}}})
    wanted = f"True PolicyLoaded {generation}"
    tenant.eventually(lambda: condition_of(tenant, "Loaded"), lambda found: found == wanted)


def places(tenant: Tenant, name: str, workers: int = 1) -> dict[str, str]:
    """Pod to node of a new job, once it runs."""
    tenant.create(training_job(name, task("worker", workers), estimatedDuration="1h"))
    tenant.await_phase(name, "Running")
    return nodes_of(tenant.pods(name))


def started(records: Path, name: str) -> RecordedCycle:
    """The recorded cycle that started the job."""
    for moment in open_record([records]).cycles():
        uids = {gang.uid for gang in moment.snapshot.waiting if gang.name == name}
        if uids & moment.outline.starts.keys():
            return moment
    raise AssertionError(f"no recorded cycle started {name}")


def sample(port: int, metric: str) -> float:
    """A metric of a program by its whole name, labels included; 0 before there is any."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{metric} ")), 0.0)


def operator_sample(stack: BiremeStack, metric: str) -> float:
    return sample(stack.operator().port, metric)


def test_another_checkpoint_places_as_the_library_predicts_without_a_restart(
    tenant: Tenant, stack: BiremeStack, trained: Path, records: Path
) -> None:
    pid = stack.operator().pid
    found = {"swap-four": places(tenant, "swap-four", 4)}
    (busy,) = set(found["swap-four"].values())
    use(tenant, "emptiest")
    found["swap-one"] = places(tenant, "swap-one")
    assert set(found["swap-one"].values()) != {busy}
    use(tenant, "fullest", 2)
    found["swap-six"] = places(tenant, "swap-six", 6)
    assert list(found["swap-six"].values()).count(busy) == 4, "it fills what is in use"
    assert stack.operator().pid == pid

    settings = open_record([records]).settings
    sources = {"swap-four": "", "swap-one": "emptiest", "swap-six": "fullest"}
    for name, checkpoint in sources.items():
        moment = started(records, name)
        assert moment.source.checkpoint == checkpoint
        policy, source = lookup.policy_of(moment.source, settings, make_policy, str(trained))
        assert source == moment.source, "the digest is that of the folder"
        predicted = outline_of(run_cycle(moment.snapshot, policy), moment.snapshot.nodes)
        assert predicted == moment.outline
        (uid,) = (gang.uid for gang in moment.snapshot.waiting if gang.name == name)
        actual: dict[str, int] = {}
        for node in found[name].values():
            actual[node] = actual.get(node, 0) + 1
        assert predicted.starts[uid] == {"worker": actual}


def test_a_changed_parameter_decides_without_a_restart_and_a_bad_one_changes_nothing(
    tenant: Tenant, stack: BiremeStack, records: Path
) -> None:
    """A policy that expects whole nodes keeps them; one of pairs keeps an even number free."""
    pid = stack.operator().pid

    def expect(generation: int, share_of_2: float, share_of_8: float) -> None:
        shares = {"share_of_2": share_of_2, "share_of_8": share_of_8}
        spec = {"placer": "fgd", "parameters": {"placer": {**ONLY, **shares}}}
        if generation == 1:
            tenant.create(scheduling_policy("policy", **spec))
        else:
            tenant.patch("SchedulingPolicy", "policy", {"spec": spec})

    def loads(generation: int) -> None:
        wanted = f"True PolicyLoaded {generation}"
        tenant.eventually(lambda: condition_of(tenant, "Loaded"), lambda found: found == wanted)

    (busy,) = set(places(tenant, "five", 5).values())
    expect(1, share_of_2=0, share_of_8=1)
    loads(1)
    assert set(places(tenant, "beside").values()) == {busy}
    expect(2, share_of_2=1, share_of_8=0)
    loads(2)
    assert set(places(tenant, "apart").values()) != {busy}
    expect(3, share_of_2=1, share_of_8=-1)
    refused = "False LoadFailed 3"
    tenant.eventually(lambda: condition_of(tenant, "Loaded"), lambda found: found == refused)
    conditions = tenant.status("policy", "SchedulingPolicy")["conditions"]
    said = next(each["message"] for each in conditions if each["type"] == "Loaded")
    assert "share_of_8 is -1.0; it must be at least 0" in said
    assert stack.operator().pid == pid
    settings = open_record([records]).settings
    for name in ("beside", "apart"):
        moment = started(records, name)
        assert "share_of_8" in moment.source.placer_parameters
        policy, _ = lookup.policy_of(moment.source, settings, make_policy)
        predicted = outline_of(run_cycle(moment.snapshot, policy), moment.snapshot.nodes)
        assert predicted == moment.outline


def test_parameters_of_what_is_not_named_are_refused_by_the_api_server(tenant: Tenant) -> None:
    wrong = scheduling_policy("wrong", orderer="fifo", parameters={"placer": {"share_of_2": 1}})
    said = tenant.refusal(wrong)
    assert "for an orderer, a placer or a sizer that the policy does not name" in said


def size_of(tenant: Tenant, name: str) -> int:
    """Pods of a job, once it runs with them all."""
    pods, ready = tenant.pods(name), str(tenant.status(name).get("ready"))
    return len(pods) if ready == f"{len(pods)}/{len(pods)}" else 0


def test_a_checkpoints_sizer_decides_how_large_an_elastic_job_is(
    tenant: Tenant, trained: Path, records: Path
) -> None:
    """One that tells nothing gets what it asks for; the general rule would fill idle nodes."""
    use(tenant, "sizer")
    workers = task("worker", 3, minReplicas=2, maxReplicas=6)
    tenant.create(training_job("sized", workers, rendezvous="torch"))
    tenant.eventually(lambda: size_of(tenant, "sized"), lambda size: size == 3, 45.0)
    always(lambda: len(tenant.pods("sized")), lambda size: size == 3, 4.0, what="as asked")
    moment = started(records, "sized")
    assert moment.source.checkpoint == "sizer"
    settings = open_record([records]).settings
    policy, _ = lookup.policy_of(moment.source, settings, make_policy, str(trained))
    assert outline_of(run_cycle(moment.snapshot, policy), moment.snapshot.nodes) == moment.outline
    assert condition_of(tenant, "Degraded").startswith("False AnswersValid")
    tenant.cluster.kubectl("delete", "bsp", "policy")
    tenant.eventually(lambda: size_of(tenant, "sized"), lambda size: size == 6, 45.0)


def test_a_corrupt_checkpoint_degrades_visibly_and_no_job_waits_longer_for_it(
    tenant: Tenant, stack: BiremeStack, trained: Path
) -> None:
    checkpoints.write(trained / "corrupt", placer=[1.0], place_encoder=NODES)
    part = trained / "corrupt" / checkpoints.PLACER
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    failures = 'bireme_policy_loads_total{outcome="failed"}'
    before = operator_sample(stack, failures)

    tenant.create(trained_by("corrupt"))
    places(tenant, "during", 2)
    assert tenant.status("during")["waitSeconds"] < RETRY_SECONDS / 2
    assert tenant.plan("during") is not None
    refused = "False LoadFailed 1"
    tenant.eventually(lambda: condition_of(tenant, "Loaded"), lambda found: found == refused)
    (condition,) = tenant.status("policy", "SchedulingPolicy")["conditions"]
    assert "placer.onnx" in condition["message"]
    assert condition["message"].endswith("the settings decide")
    assert operator_sample(stack, failures) > before
    shown = tenant.cluster.kubectl("get", "bsp", "policy").splitlines()
    assert " ".join(shown[1].split()).startswith("policy Active corrupt False"), shown
    reasons = tenant.cluster.kubectl("get", "events", "-n", "default", "-o=jsonpath={..reason}")
    assert "LoadFailed" in reasons.split()
    tenant.delete("TrainingJob", "during")
    use(tenant, "emptiest", 2)


def test_a_shadow_is_compared_in_metrics_and_status(tenant: Tenant, stack: BiremeStack) -> None:
    tenant.create(trained_by("orderer", "Shadow"))
    loaded = "True PolicyLoaded 1"
    tenant.eventually(lambda: condition_of(tenant, "Loaded"), lambda found: found == loaded)
    places(tenant, "compared", 2)
    compared = 'bireme_policy_shadow_decisions{policy="policy"}'
    tenant.eventually(lambda: operator_sample(stack, compared))
    assert operator_sample(stack, 'bireme_policy_shadow_agreement{policy="policy"}') == 1.0
    assert operator_sample(stack, 'bireme_policy_deciding{policy="policy"}') == 0.0
    found: Mapping[str, float] = tenant.eventually(
        lambda: tenant.status("policy", "SchedulingPolicy").get("shadow"),
        lambda found: "regret" in (found or {}),
    )
    assert (found["agreement"], found["regret"]) == (1.0, 0.0)


def best_nodes(moment: RecordedCycle, checkpoint: Path) -> set[str]:
    """Nodes the library likes best for one replica of the job that started then."""
    snapshot = moment.snapshot
    (gang,) = (gang for gang in snapshot.waiting if gang.uid in moment.outline.starts)
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)
    rows = np.flatnonzero(capacity.replicas(gang.tasks[0]) > 0)
    scorer = LearnedScorer(lookup.load_named(checkpoint.name, str(checkpoint.parent)))
    scores = scorer.score(ScoreQuestion(gang.tasks[0], capacity, rows, {}))
    return {snapshot.nodes.names[row] for row in rows[scores == scores.max()]}


@pytest.fixture
def score_mode(stack: BiremeStack) -> Iterator[None]:
    """An operator that pins nothing, as after starts that failed."""
    stack.operator().terminate()
    stack.operator(internals={"max_pinned_failures": 0}).start().wait_ready()
    yield
    stack.operator().terminate()
    stack.operator(internals={}).start().wait_ready()


@pytest.mark.usefixtures("score_mode")
def test_pods_in_score_mode_go_where_the_learned_placer_scores_highest(
    tenant: Tenant, stack: BiremeStack, trained: Path, records: Path
) -> None:
    port = stack.extender.port
    for generation, name in enumerate(("fullest", "emptiest"), 1):
        loads, calls = sample(port, LOADS), sample(port, CALLS)
        use(tenant, name, generation)
        tenant.eventually(lambda: sample(port, LOADS), partial(operator.lt, loads))
        assert sample(port, "bireme_extender_learned_scorer") == 1.0
        for turn in range(3):
            job = f"{name}-{turn}"
            (node,) = places(tenant, job).values()
            plan = tenant.plan(job)
            assert plan is not None
            assert plan["mode"] == "Score"
            assert node in best_nodes(started(records, job), trained / name), job
        assert sample(port, CALLS) >= calls + 3
    assert sample(port, "bireme_extender_score_fallbacks_total") == 0.0
