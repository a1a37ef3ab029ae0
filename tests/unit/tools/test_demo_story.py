"""The jobs of the demo: whatever the seed deals, the story has its turns."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.demo.story import full_workload, small_workload
from tools.demo.submission import Submitter
from tools.demo.workload import Cue, Manifest, Part, Submission, Workload, single

SEEDS = range(40)
Maker = Callable[[int], Workload]
both_sizes = pytest.mark.parametrize(("make", "jobs"), [(full_workload, 24), (small_workload, 17)])


def gpus_of(job: Submission, least: str = "replicas") -> int:
    """GPUs of all replicas of a job; ``least`` names the field that counts them."""
    counts = (
        task.get(least, task["replicas"])
        * task["template"]["spec"]["containers"][0]["resources"]
        .get("limits", {})
        .get("nvidia.com/gpu", 0)
        for task in job.manifest["spec"]["tasks"]
    )
    return sum(counts)


def expected(job: Submission) -> int:
    """The run time that the job states, seconds."""
    return int(job.manifest["spec"]["estimatedDuration"].removesuffix("s"))


def run_time(job: Submission, task: int = 0) -> int:
    """The run time of the replicas of a task, seconds."""
    annotations = job.manifest["spec"]["tasks"][task]["template"]["metadata"]["annotations"]
    return int(annotations["fake.bireme.dev/duration"].removesuffix("s"))


def part(workload: Workload, name: Part) -> Submission:
    """The job with that part."""
    return next(job for job in workload.submissions if job.part == name)


def wave(workload: Workload) -> list[Submission]:
    """The two gangs that fill the cluster, the one that soon ends first."""
    elastic = part(workload, "elastic").name
    return sorted((j for j in workload.submissions if j.after.jobs == (elastic,)), key=gpus_of)


def blocks(workload: Workload) -> list[Submission]:
    """The equal gangs of which one is stopped: those whose start is the urgent one's cue."""
    names = part(workload, "urgent").after.jobs
    return [job for job in workload.submissions if job.name in names]


@both_sizes
@pytest.mark.parametrize("seed", SEEDS)
def test_wave_fills_the_cluster_once_the_elastic_job_has_given_back(
    make: Maker, jobs: int, seed: int
) -> None:
    workload = make(seed)
    capacity = workload.nodes * 8
    assert len({job.name for job in workload.submissions}) == len(workload.submissions) == jobs
    first, second = wave(workload)
    elastic = part(workload, "elastic")
    services = [job for job in workload.submissions if not (job.part or job.after.jobs)]
    held = sum(map(gpus_of, (*services, first, second)))
    assert held + gpus_of(elastic) == capacity
    assert held - gpus_of(second) + elastic.after.gpus <= capacity
    assert first.after.gpus == gpus_of(elastic, "maxReplicas") == 2 * gpus_of(elastic)
    assert [j.name for j in workload.submissions if gpus_of(j) > capacity] == ["llm-175b"]


@both_sizes
@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_short_gang_fits_into_the_gap_before_the_large_one(
    make: Maker, jobs: int, seed: int
) -> None:
    workload = make(seed)
    (first, second), large = wave(workload), part(workload, "reserved")
    short, long = part(workload, "short"), part(workload, "long")
    assert gpus_of(large) == gpus_of(first) + gpus_of(second)
    gap = expected(second) - run_time(first)
    assert expected(short) <= gap - 5, "five seconds for what the machine takes"
    assert all(expected(block) > expected(second) for block in blocks(workload))
    assert long in blocks(workload)
    assert gpus_of(short) < gpus_of(long) <= gpus_of(first)


@both_sizes
@pytest.mark.parametrize("seed", SEEDS)
def test_urgent_gang_needs_the_places_of_one_of_three_equals(
    make: Maker, jobs: int, seed: int
) -> None:
    workload = make(seed)
    equal, urgent = blocks(workload), part(workload, "urgent")
    assert len(equal) == 5
    assert {gpus_of(block) for block in equal} == {gpus_of(urgent)}
    assert {block.manifest["spec"]["priorityClassName"] for block in equal} == {"training-standard"}
    assert urgent.after.gpus == 3 * gpus_of(urgent)
    (service,) = (job for job in workload.submissions if job.name == "fraud-score")
    left = workload.nodes * 8 - urgent.after.gpus - gpus_of(service)
    assert left < gpus_of(urgent), "whatever else has ended"
    services = max(run_time(j, 1) for j in workload.submissions if not (j.part or j.after.jobs))
    large_ends = 3 + run_time(wave(workload)[1]) + run_time(part(workload, "reserved"))
    lead = services - large_ends
    assert min(map(run_time, equal)) > lead + urgent.seconds + 3, "none ends just then"
    assert run_time(service, 1) >= min(map(run_time, equal)) + urgent.seconds


def test_equal_seeds_give_equal_jobs_and_others_do_not() -> None:
    assert full_workload(3) == full_workload(3)
    assert len({str(full_workload(seed)) for seed in SEEDS}) == len(SEEDS)


# --- cues ------------------------------------------------------------------------------------


class FakeCluster:
    """Notes the files that it is given."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.changed = threading.Event()

    def apply(self, files: Sequence[Path]) -> None:
        self.applied += [file.name.rpartition("-")[2] for file in files]
        self.changed.set()


def submission(name: str, *before: str, gpus: int = 0) -> Submission:
    manifest: Manifest = single(name, 1, 1)
    return Submission(0, manifest, after=Cue(gpus, before))


def test_job_is_submitted_when_those_before_it_hold_their_gpus(tmp_path: Path) -> None:
    cluster: Any = FakeCluster()
    held = {"one": 4, "two": 3}
    jobs = (submission("late", "one", "two", gpus=8), submission("soon"))
    submitter = Submitter(cluster, Workload(1, 1, jobs), tmp_path, lambda name: held[name])
    with submitter:
        assert cluster.changed.wait(10)
        cluster.changed.clear()
        assert (cluster.applied, submitter.is_done) == (["soon.yaml"], False)
        held["two"] = 4
        assert cluster.changed.wait(10)
    assert cluster.applied == ["soon.yaml", "late.yaml"]
