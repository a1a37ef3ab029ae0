"""An elastic job under an operator: what it is, and how large it has become."""

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.operator_term.term import pods, status
from testbed.scenario.manifests import Manifest, task, training_job

SETTLED = SchedulingSettings(resize_settle_seconds=0)


def elastic(replicas: int = 4, least: int = 2, most: int = 8) -> Manifest:
    """The job ``elastic`` of one-GPU workers."""
    workers = task("worker", replicas, minReplicas=least, maxReplicas=most)
    return training_job("elastic", workers, rendezvous="torch")


def of(api: FakeApi, job: str) -> list[Object]:
    """Pods of a job, by index."""
    own = [p for p in pods(api) if p["metadata"]["labels"][names.JOB_LABEL] == job]
    return sorted(own, key=lambda p: int(p["metadata"]["labels"][names.INDEX_LABEL]))


def ready(api: FakeApi, job: str = "elastic") -> str:
    """Its pods that are ready, as ``of/all``."""
    return str(status(api, job).get("ready"))


def is_whole(api: FakeApi, size: int, job: str = "elastic") -> bool:
    """Whether plan, pods and status of a running job all say ``size``."""
    plan = status(api, job).get("plan") or {"tasks": ()}
    planned = sum(planned["replicas"] for planned in plan["tasks"])
    return (planned, len(of(api, job)), ready(api, job)) == (size, size, f"{size}/{size}")
