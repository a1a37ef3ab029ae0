"""Why a pod ended, in words: whichever container failed, and whatever the kubelet says of the pod.

The statuses are those that kubelets of Kubernetes 1.37 write.
"""

from typing import Any

import pytest

from bireme.kube import pods, wire
from bireme.kube.endings import MAX_ENDING
from testbed.objects.facts import served, through_the_wire
from testbed.scenario.manifests import pod

LONG_AGO, LATER = "2030-01-01T00:00:00Z", "2030-01-01T00:00:09Z"


def facts(status: dict[str, Any], *init_containers: dict[str, Any]) -> pods.PodFacts:
    manifest = {**served(pod("p"), "p-uid"), "status": {"phase": "Failed", **status}}
    manifest["spec"] = {**manifest["spec"], "initContainers": list(init_containers)}
    return pods.from_manifest(through_the_wire(manifest, wire.V1Pod))


def terminated(name: str, code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, **more}}}


def waiting(name: str, reason: str = "PodInitializing", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason}}, **more}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (terminated("train", 1), "container train exited with 1 (Error)"),
        (
            terminated("train", 137, "OOMKilled"),
            "container train exited with 137 (OOMKilled, SIGKILL)",
        ),
        (terminated("train", 0, "OOMKilled"), "container train exited with 0 (OOMKilled)"),
        (terminated("train", 139), "container train exited with 139 (Error, SIGSEGV)"),
        (terminated("train", 2, signal=15), "container train exited with 2 (Error, SIGTERM)"),
        (terminated("train", 255), "container train exited with 255 (Error)"),
        (terminated("train", 1, ""), "container train exited with 1"),
        (
            terminated("train", 137, "ContainerStatusUnknown", message="it could not be located"),
            "container train exited with 137 (ContainerStatusUnknown): it could not be located",
        ),
        (
            terminated("train", 128, "StartError", message='exec: "trian": not found'),
            'container train exited with 128 (StartError): exec: "trian": not found',
        ),
    ],
)
def test_a_failed_container_is_named_with_code_reason_signal_and_message(
    container: dict[str, Any], words: str
) -> None:
    assert facts({"containerStatuses": [container]}).failure == words


def test_a_failed_init_container_is_the_reason_although_main_containers_only_wait() -> None:
    status = {
        "initContainerStatuses": [
            terminated("first", 0, "Completed"),
            terminated("fetch", 3, message="no dataset at s3://bucket"),
        ],
        "containerStatuses": [waiting("train")],
    }
    words = "init container fetch exited with 3 (Error): no dataset at s3://bucket"
    assert facts(status, {"name": "first"}, {"name": "fetch"}).failure == words


def test_a_sidecar_that_is_stopped_after_the_training_is_not_the_reason() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    stopped = terminated("proxy", 143, finishedAt=LATER)
    both = {
        "initContainerStatuses": [stopped],
        "containerStatuses": [terminated("train", 1, finishedAt=LATER)],
    }
    assert facts(both, sidecar).failure == "container train exited with 1 (Error)"
    alone = {"initContainerStatuses": [stopped]}
    assert facts(alone, sidecar).failure == "sidecar proxy exited with 143 (Error, SIGTERM)"


def test_of_several_the_container_that_failed_first_is_the_reason() -> None:
    late, early = terminated("a", 1, finishedAt=LATER), terminated("b", 2, finishedAt=LONG_AGO)
    fine, undated = terminated("c", 0, "Completed", finishedAt=LONG_AGO), terminated("d", 4)
    assert (
        "container b exited" in facts({"containerStatuses": [undated, late, fine, early]}).failure
    )
    killed = terminated("big", 137, "OOMKilled", finishedAt=LONG_AGO)
    other = terminated("agent", 1, finishedAt=LONG_AGO)
    assert "container big exited" in facts({"containerStatuses": [other, killed]}).failure


def test_a_container_that_only_waits_for_its_next_restart_says_how_the_last_run_ended() -> None:
    last = terminated("train", 137, "OOMKilled")["state"]
    container = waiting("train", "CrashLoopBackOff", lastState=last, restartCount=4)
    deadline = {"reason": "DeadlineExceeded", "message": "Pod was active for too long"}
    assert facts({"containerStatuses": [container], **deadline}).failure == (
        "DeadlineExceeded: Pod was active for too long; "
        "container train exited with 137 (OOMKilled, SIGKILL)"
    )
    obstacles = facts({"phase": "Pending", "containerStatuses": [container]}).obstacles
    assert obstacles is not None
    assert obstacles.waiting == (
        "container train is in CrashLoopBackOff; it exited with 137 (OOMKilled, SIGKILL)"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "the pod failed"),
        ({"reason": "Evicted"}, "Evicted"),
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "Evicted: The node was low on resource: memory.",
        ),
        ({"message": "Usage of EmptyDir exceeds its limit"}, "Usage of EmptyDir exceeds its limit"),
        (
            {"reason": "UnexpectedAdmissionError", "message": "Allocate failed"},
            "UnexpectedAdmissionError: Allocate failed",
        ),
        (
            {
                "reason": "Evicted",
                "message": "The node was low on resource: memory.",
                "containerStatuses": [terminated("train", 137)],
            },
            (
                "Evicted: The node was low on resource: memory.; "
                "container train exited with 137 (Error, SIGKILL)"
            ),
        ),
        (
            {
                "reason": "Terminated",
                "message": "Pod was terminated in response to imminent node shutdown.",
                "containerStatuses": [terminated("train", 137, "ContainerStatusUnknown")],
            },
            "Terminated: Pod was terminated in response to imminent node shutdown.",
        ),
    ],
)
def test_what_the_kubelet_says_of_the_pod_comes_first(status: dict[str, Any], words: str) -> None:
    assert facts(status).failure == words


def test_a_pod_that_still_runs_has_not_ended() -> None:
    assert facts({"phase": "Running", "message": "all is well"}).ending == ""


def test_who_disrupted_a_pod_is_said_beside_how_it_ended() -> None:
    def evicted(message: str) -> dict[str, Any]:
        condition = {"type": "DisruptionTarget", "status": "True", "message": message}
        condition["reason"] = "TerminationByKubelet"
        low = "The node was low on resource: memory."
        return {"reason": "Evicted", "message": low, "conditions": [condition]}

    low = "Evicted: The node was low on resource: memory."
    same = facts(evicted("The node was low on resource: memory."))
    assert same.ending == f"TerminationByKubelet: {low}"
    assert facts(evicted("by hand")).ending == f"TerminationByKubelet: by hand; {low}"


def test_the_line_has_no_control_characters_and_a_bounded_length() -> None:
    message = "Traceback:\n" + "\x1b[31m" + "  File\n" * 400 + "\tValueError: loss is nan\n"
    both = [terminated("train", 1, message=message), terminated("other", 1, message=message)]
    words = facts({"containerStatuses": both, "reason": "R" * 900, "message": "m\r\n"}).failure
    assert words.isprintable()
    assert len(words) <= MAX_ENDING
    plain = facts({"containerStatuses": both}).failure
    assert plain.startswith("container train exited with 1 (Error): Traceback:")
    assert plain.endswith("ValueError: loss is nan")  # the end of a log has the error
