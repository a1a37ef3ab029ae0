"""bireme migrate convert: what becomes of Volcano's manifests, and the notes about it."""

from typing import Any

import pytest
import yaml

from bireme.cli import main
from bireme.cli.conversion import ConversionError, Effect, Note
from bireme.cli.convert import convert

JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train, namespace: team-a, annotations: {volcano.sh/x: "1", keep: "yes"}}
spec:
  schedulerName: volcano
  queue: research
  priorityClassName: high
  maxRetry: 7
  ttlSecondsAfterFinished: 600
  runningEstimate: 2h
  tasks:
    - name: worker
      replicas: 4
      template:
        metadata: {name: web, labels: {app: x}}
        spec:
          schedulerName: volcano
          restartPolicy: Never
          containers: [{name: main, image: busybox, command: [sleep, "1"]}]
"""


def manifest(text: str = JOB, **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(text)
    document["spec"] |= spec
    return document


def task(name: str, replicas: int, command: str = "sleep 1", **more: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", command]}]}
    return {"name": name, "replicas": replicas, "template": {"spec": pod}, **more}


def job(**spec: Any) -> tuple[dict[str, Any], list[Note]]:
    """The TrainingJob that the Job with ``spec`` becomes, and the notes."""
    made, notes = convert([manifest(**spec)], {})
    return made[-1], list(notes)


def text_of(notes: list[Note], field: str) -> str:
    return "; ".join(note.text for note in notes if note.field == field)


def test_a_plain_job_keeps_everything_that_both_can_say() -> None:
    made, notes = job()
    spec = made["spec"]
    assert made["metadata"] == {
        "name": "train", "namespace": "team-a", "annotations": {"keep": "yes"},
    }  # fmt: skip
    assert (spec["queue"], spec["priorityClassName"]) == ("research", "high")
    assert spec["estimatedDuration"] == "2h"
    assert spec["runPolicy"] == {"backoffLimit": 7, "ttlSecondsAfterFinished": 600}
    assert spec["tasks"][0]["template"]["metadata"] == {"labels": {"app": "x"}}
    assert "schedulerName" not in spec["tasks"][0]["template"]["spec"]
    assert notes == []


def test_the_retries_of_a_job_that_says_nothing_are_volcanos_default() -> None:
    document = manifest()
    del document["spec"]["maxRetry"]
    assert convert([document], {})[0][-1]["spec"]["runPolicy"]["backoffLimit"] == 3


def test_fewer_available_than_replicas_becomes_a_minimum_of_the_largest_task() -> None:
    made, notes = job(minAvailable=4, tasks=[task("ps", 2), task("worker", 6)])
    assert [t.get("minReplicas") for t in made["spec"]["tasks"]] == [None, 2]
    assert "starts with 4 of 8" in text_of(notes, "spec.minAvailable")


def test_a_task_always_keeps_one_replica() -> None:
    made, notes = job(minAvailable=1, tasks=[task("a", 2), task("b", 3)])
    assert [t.get("minReplicas") for t in made["spec"]["tasks"]] == [1, 1]
    assert "starts with 2" in text_of(notes, "spec.minAvailable")


def test_roles_come_from_the_plugin_then_from_the_name() -> None:
    made, _ = job(
        plugins={"pytorch": ["--master=boss", "--worker=crew"]},
        tasks=[task("boss", 1), task("crew", 2)],
    )
    assert [t["role"] for t in made["spec"]["tasks"]] == ["master", "worker"]
    assert made["spec"]["rendezvous"] == "torch"
    made, _ = job(tasks=[task("pserver", 2), task("trainer", 2)])
    assert [t["role"] for t in made["spec"]["tasks"]] == ["ps", "worker"]


def test_a_given_role_wins_over_the_name() -> None:
    made, _ = convert([manifest(tasks=[task("alpha", 1), task("beta", 2)])], {"alpha": "chief"})
    assert [t["role"] for t in made[-1]["spec"]["tasks"]] == ["chief", "worker"]


def test_a_leader_of_several_replicas_is_a_worker() -> None:
    made, _ = job(tasks=[task("master", 3)])
    assert made["spec"]["tasks"][0]["role"] == "worker"


def test_what_serves_until_one_task_has_ended_serves_like_a_parameter_server() -> None:
    ends = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    made, notes = job(tasks=[task("mpimaster", 1, policies=ends), task("mpiworker", 2)])
    assert [t["role"] for t in made["spec"]["tasks"]] == ["worker", "ps"]
    assert "mpiworker became role ps" in text_of(notes, "spec.tasks[].policies")


def test_a_script_that_reads_its_index_finds_it() -> None:
    made, _ = job(tasks=[task("worker", 2, "echo ${VK_TASK_INDEX}")])
    variables = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    paths = {v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] for v in variables}
    assert paths["VK_TASK_INDEX"] == "metadata.labels['bireme.dev/index']"


def test_a_script_that_reads_the_host_files_finds_them() -> None:
    made, _ = convert(
        [manifest(tasks=[task("ps", 1), task("worker", 2, "cat /etc/volcano/ps.host")])], {}
    )
    files, training = made
    assert files["data"]["worker.host"].splitlines() == [
        "train-worker-0.train.team-a.svc", "train-worker-1.train.team-a.svc",
    ]  # fmt: skip
    spec = training["spec"]["tasks"][1]["template"]["spec"]
    assert spec["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/etc/volcano"
    assert {"name": "VC_WORKER_NUM", "value": "2"} in spec["containers"][0]["env"]
    assert training["spec"]["rendezvous"] == "tensorflow"  # it names the replicas


def test_a_claim_that_volcano_would_have_made_is_an_object_of_its_own() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made, notes = convert(
        [manifest(volumes=[{"mountPath": "/in", "volumeClaimName": "data"},
                           {"mountPath": "/out", "volumeClaim": claim}])], {}
    )  # fmt: skip
    assert (made[0]["kind"], made[0]["metadata"]["name"]) == (
        "PersistentVolumeClaim", "train-volume-1",
    )  # fmt: skip
    mounts = made[1]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert [m["mountPath"] for m in mounts] == ["/in", "/out"]
    assert "outlives" in text_of(list(notes), "spec.volumes[1]")


@pytest.mark.parametrize(
    ("policy", "is_kept"),
    [
        ({"event": "PodEvicted", "action": "RestartJob"}, True),
        ({"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}, True),
        ({"event": "TaskCompleted", "action": "CompleteJob"}, True),
        ({"event": "PodFailed", "action": "AbortJob"}, True),
        ({"event": "PodPending", "action": "AbortJob", "timeout": "1h"}, False),
        ({"exitCode": 3, "action": "RestartTask"}, False),
        ({"event": "*", "action": "RestartTask"}, False),
    ],
)
def test_a_policy_is_kept_or_named(policy: dict[str, Any], is_kept: bool) -> None:
    _, notes = job(policies=[policy])
    assert bool(text_of(notes, "spec.policies[0]")) is not is_kept


def test_a_job_that_stops_at_the_first_failure_is_not_tried_again() -> None:
    made, _ = job(policies=[{"event": "PodFailed", "action": "AbortJob"}])
    assert made["spec"]["runPolicy"]["backoffLimit"] == 0


def test_a_leader_decides_in_the_converted_job_where_it_did_before() -> None:
    ends = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    plugin: dict[str, list[str]] = {"tensorflow": []}
    decided, _ = job(tasks=[task("chief", 1, policies=ends), task("worker", 2)], plugins=plugin)
    assert "successPolicy" not in decided["spec"]["runPolicy"]
    every, notes = job(tasks=[task("chief", 1), task("worker", 2)], plugins=plugin)
    assert every["spec"]["runPolicy"]["successPolicy"] == "AllReplicas"
    assert "the leader chief decides" in text_of(notes, "spec.policies")
    led_by_nobody, _ = job(tasks=[task("worker", 2)])
    assert "successPolicy" not in led_by_nobody["spec"]["runPolicy"]


def test_tasks_that_others_depend_on_are_placed_first_and_waiting_is_left_to_do() -> None:
    made, notes = job(
        tasks=[
            task("a", 1, dependsOn={"name": ["b"]}),
            task("b", 1, dependsOn={"name": ["c"]}),
            task("c", 1),
        ]
    )
    assert [t["priority"] for t in made["spec"]["tasks"]] == [80, 90, 100]
    assert [n.effect for n in notes if n.field == "spec.tasks[].dependsOn"] == [Effect.TO_DO]


def test_tasks_that_depend_on_each_other_end() -> None:
    made, _ = job(
        tasks=[task("a", 1, dependsOn={"name": ["b"]}), task("b", 1, dependsOn={"name": ["a"]})]
    )
    assert len(made["spec"]["tasks"]) == 2


@pytest.mark.parametrize("plugin", ["ssh", "mpi", "ray", "hcclrank", "own"])
def test_a_plugin_without_a_counterpart_leaves_something_to_do(plugin: str) -> None:
    _, notes = job(plugins={plugin: []})
    assert [n.effect for n in notes if n.field == f"spec.plugins.{plugin}"] == [Effect.TO_DO]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tasks": []}, "spec.tasks is empty"),
        ({"tasks": [task("a", 1), task("a", 1)]}, "two tasks are called 'a'"),
        ({"tasks": [task("ps", 1)]}, "none trains"),
        ({"tasks": [task("Worker_1", 1)]}, r"tasks\.0\.name would be 'Worker_1'"),
        ({"tasks": [task("worker", 0)]}, r"replicas would be 0"),
        ({"minAvailable": 5}, "spec.minAvailable is 5, its tasks have 4 replicas"),
        ({"tasks": "many"}, "does not have the form of its API"),
    ],
)
def test_a_job_that_cannot_be_converted_is_named(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversionError, match=words) as raised:
        job(**spec)
    assert "team-a/train" in str(raised.value)


def test_the_command_writes_manifests_and_remarks_apart(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "volcano.yaml"
    source.write_text(yaml.safe_dump(manifest(plugins={"ssh": []})))
    assert main(["migrate", "convert", str(source)]) == 0
    captured = capsys.readouterr()
    assert yaml.safe_load(captured.out)["kind"] == "TrainingJob"
    assert captured.err.startswith("to do  Job team-a/train  spec.plugins.ssh")


def test_the_command_names_what_it_cannot_use(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "convert", str(tmp_path / "none.yaml")]) == 2
    assert "argument MANIFEST" in capsys.readouterr().err
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert main(["migrate", "convert", str(tmp_path / "bytes.yaml")]) == 2
    assert "UTF-8" in capsys.readouterr().err
    assert main(["migrate", "convert", "x", "--role", "a=king"]) == 2
    assert "TASK=ROLE" in capsys.readouterr().err
