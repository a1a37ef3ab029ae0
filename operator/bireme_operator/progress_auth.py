"""Progress reports of training pods: authenticates their senders and keeps the latest per job.

A report counts if the API server authenticates its token for this endpoint (TokenReview). The
token's pod must be, by its uid, a live member of the job's current plan. The operator keeps the
latest report of every job until it is due in the job's status, where decisions read it. So a new
leader has all written reports, and no job costs more writes than the settings allow.

The operator first reads the pod's name from the token, without trust. So only tokens that name a
member of a gang cost a TokenReview. Each such pod and sender costs at most one in five minutes: the
kubelet renews a token every 48 minutes. Answers, also refusals, are cached by the token's digest.
"""

import asyncio
import base64
import binascii
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

from bireme.core.gangs import Key
from bireme.kube.allocations import GangView
from bireme.kube.client import ApiClient, ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_builder import AUDIENCE
from bireme.kube.pods import PodFacts
from bireme.kube.progress_reports import ProgressReport, ReportedRun, with_report
from bireme.kube.training_jobs import JobFacts
from bireme_operator.http_server import RequestRefused
from bireme_operator.rate_limiter import RateLimiter

REMEMBERED_SECONDS: Final = 300.0
WRITE_SECONDS = 30.0
"""Time between two writes of a job's progress into its status: thousands of jobs report, and each
write goes to every watcher of the job."""
_MAX_REMEMBERED: Final = 8192
_REVIEWS_PER_SECOND: Final = 20
_MAX_TOKEN: Final = 8192
_RETRY_SECONDS: Final = 5.0
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_USER: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Sender:
    """The pod to which a token is bound."""

    namespace: str
    pod: str
    uid: str


class _Pod(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    namespace: str = ""
    pod: _Pod = _Pod()


class _Claims(msgspec.Struct, frozen=True):
    aud: list[str] | str = ""
    binding: _Bound = msgspec.field(default=_Bound(), name="kubernetes.io")


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: list[str] = []
    user: _User = _User()
    error: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


def read_claim(token: str) -> Sender:
    """Return the pod that ``token`` claims, without authentication.

    Raises:
        RequestRefused: it is no pod's token for this endpoint.
    """
    if len(token) > _MAX_TOKEN:
        raise RequestRefused(401, f"the token is longer than {_MAX_TOKEN} characters")
    try:
        payload = token.split(".")[1]
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims = msgspec.json.decode(text, type=_Claims)
    except (IndexError, binascii.Error, ValueError, RecursionError) as error:
        raise RequestRefused(401, "the bearer token is no ServiceAccount token") from error
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if AUDIENCE not in audiences:
        raise RequestRefused(
            401, f"the token is not for audience {AUDIENCE!r}; send that of the projected volume"
        )
    pod = claims.binding.pod
    if not (pod.name and pod.uid and claims.binding.namespace):
        raise RequestRefused(
            401, "the token is not bound to a pod; send that of the projected volume"
        )
    return Sender(claims.binding.namespace, pod.name, pod.uid)


class Tokens:
    """Authenticates tokens by TokenReview and caches answers; ``clock`` is monotonic seconds."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._per_pod = RateLimiter(1 / REMEMBERED_SECONDS, 1, clock)
        self._in_all = RateLimiter(_REVIEWS_PER_SECOND, _REVIEWS_PER_SECOND, clock)
        self._answers: OrderedDict[bytes, tuple[float, asyncio.Future[Sender | None]]] = (
            OrderedDict()
        )

    async def sender(self, token: str, claim: Sender, address: str) -> Sender:
        """Return the pod of ``token``, by the API server's answer.

        Args:
            claim: Result of :func:`read_claim` for the token.
            address: Address of the sender.

        Raises:
            RequestRefused: the token is not authenticated, or the API server cannot be asked now.
        """
        digest = hashlib.sha256(token.encode()).digest()
        until, answer = self._answers.get(digest, (-math.inf, None))
        if answer is None or until <= self._clock():
            self._limit_reviews((claim.uid, address))
            answer = asyncio.ensure_future(self._review(digest, token, (claim.uid, address)))
            # A client may hang up before the answer arrives.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._answers[digest] = (self._clock() + REMEMBERED_SECONDS, answer)
            while len(self._answers) > _MAX_REMEMBERED:
                self._answers.popitem(last=False)
        # Shielded: other requests with the same token wait for the same answer.
        sender = await asyncio.shield(answer)
        if sender is None:
            raise RequestRefused(
                401, "the API server does not accept the token; read its file again"
            )
        return sender

    def _limit_reviews(self, sender_key: tuple[str, str]) -> None:
        """Raise RequestRefused if a TokenReview for ``sender_key`` would exceed a limit."""
        if wait := self._per_pod.take(sender_key):
            raise RequestRefused(429, "this pod has sent too many tokens; use one", wait)
        if wait := self._in_all.take("all"):
            self._per_pod.give_back(sender_key)
            raise RequestRefused(429, "too many pods report for the first time; try again", wait)

    async def _review(
        self, digest: bytes, token: str, sender_key: tuple[str, str]
    ) -> Sender | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            review = msgspec.json.decode(await self._client.create(_REVIEWS, body), type=_Review)
        except (ApiError, NotLeader, msgspec.DecodeError) as error:
            self._answers.pop(digest, None)  # no verdict: ask again
            self._per_pod.give_back(sender_key)
            is_forbidden = isinstance(error, ApiError) and error.is_forbidden
            obstacle = "may not create tokenreviews" if is_forbidden else "cannot ask now"
            raise RequestRefused(
                503, f"the operator {obstacle}: {error}", _RETRY_SECONDS
            ) from error
        return _sender_of(review.status)


def _sender_of(status: _ReviewStatus) -> Sender | None:
    """Return the authenticated pod; None without one, or for another audience."""
    if not status.authenticated or AUDIENCE not in status.audiences:
        return None
    if not status.user.username.startswith(_USER):
        return None
    namespace = status.user.username.removeprefix(_USER).partition(":")[0]
    names, uids = (status.user.extra.get(key) for key in (_POD_NAME, _POD_UID))
    return Sender(namespace, names[0], uids[0]) if names and uids else None


_PER_SECOND: Final = 1.0
_BURST: Final = 5


@dataclass(frozen=True, slots=True)
class _Pending:
    """Merged report of a job since the last write of its status, with its latest time.

    ``received`` is in whole milliseconds, as in the status, and identifies a report.
    """

    report: ProgressReport
    received: float


@dataclass(slots=True)
class ProgressService:
    """Progress reports of all jobs in one leader term.

    ``clock`` gives monotonic seconds, ``now`` POSIX ones.
    """

    state: ClusterState
    tokens: Tokens
    write_seconds: float
    clock: Callable[[], float]
    now: Callable[[], float]
    _senders: RateLimiter = field(init=False)
    _pending: dict[str, _Pending] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._senders = RateLimiter(_PER_SECOND, _BURST, self.clock)

    async def admit(self, key: Key, token: str, address: str) -> str:
        """Return the uid of the job ``key`` if the bearer of ``token`` may report for it.

        Raises:
            RequestRefused: with status 401, 403, 404, 429 or 503.
        """
        claim = read_claim(token)
        if self._pod(claim) is None:
            raise RequestRefused(403, f"pod {claim.pod!r} is no member of any gang")
        if wait := self._senders.take((claim.uid, address)):
            raise RequestRefused(
                429, "this pod reports too often; report once in a few seconds", wait
            )
        sender = await self.tokens.sender(token, claim, address)
        job = self.state.objects.jobs.get(key) if sender.namespace == key[0] else None
        if job is None:
            raise RequestRefused(404, f"no TrainingJob {key[1]!r} in the namespace of this pod")
        if not self._is_member(job, sender):
            raise RequestRefused(
                403, f"pod {sender.pod!r} is no live member of TrainingJob {key[1]!r}"
            )
        return job.uid

    def _pod(self, sender: Sender) -> PodFacts | None:
        pod = self.state.objects.members.get((sender.namespace, sender.pod))
        return pod if pod is not None and pod.uid == sender.uid else None

    def _is_member(self, job: JobFacts, sender: Sender) -> bool:
        view = self.state.views.get(job.key)
        if view is None or job.plan is None or job.is_finished:
            return False
        return view.plan.attempt == job.attempt and any(
            # By uid: a pod created again under the same name is another one.
            pod is not None and pod.uid == sender.uid and not (pod.is_leaving or pod.is_terminal)
            for _, pod in view.members
        )

    def accept(self, uid: str, report: ProgressReport) -> None:
        """Keep the report of the job ``uid``; missing fields keep their reported values."""
        previous, received = self._pending.get(uid), self.now()
        if previous is not None:
            received = max(received, previous.received + 0.001)
            fields = {name: value for name, value in asdict(report).items() if value is not None}
            report = replace(previous.report, **{"remaining_seconds": None, **fields})
        self._pending[uid] = _Pending(report, round(received, 3))

    def status_update(
        self, job: JobFacts, view: GangView | None, *, at_once: bool = False
    ) -> dict[str, Any]:
        """Return ``progress`` for the status of ``job`` if it is due, or ``at_once``; else {}."""
        pending = self._pending.get(job.uid)
        if pending is None or view is None or view.plan.attempt != job.attempt:
            return {}
        last = job.latest_progress.progress.reported if job.latest_progress is not None else None
        if last is not None and last >= pending.received:
            del self._pending[job.uid]  # the status has it
            return {}
        if last is not None and not at_once and self.now() - last < self.write_seconds:
            return {}
        plan = view.plan
        run = ReportedRun(
            len(plan.members),
            plan.planned,
            max(plan.planned, plan.resized),
            job.earlier_run_seconds,
        )
        return {"progress": with_report(job.latest_progress, pending.report, pending.received, run)}

    def forget(self, uids: set[str]) -> None:
        """Drop the reports of deleted jobs; ``uids`` are those of the existing ones."""
        self._pending = {uid: pending for uid, pending in self._pending.items() if uid in uids}
