"""An embedded cluster: the API server with all its kinds, and the controllers beside it."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from bireme_lab.embedded import kubelets
from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Admission
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.http_server import ApiHttpServer
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, ApiUser
from bireme_lab.embedded.api.resources import ResourceKinds, custom_resources
from bireme_lab.embedded.api.server import ApiServer
from bireme_lab.embedded.api.store import StoreChange
from bireme_lab.embedded.builtin import pod_verbs
from bireme_lab.embedded.builtin.account_tokens import AccountTokens
from bireme_lab.embedded.builtin.accounts import account_admission
from bireme_lab.embedded.builtin.advice import ADVICE
from bireme_lab.embedded.builtin.kinds import behaviours
from bireme_lab.embedded.builtin.limit_ranges import default_limits, limit_admission
from bireme_lab.embedded.builtin.pod_security import security_admission
from bireme_lab.embedded.builtin.policies import PolicyAdmission, check_rules
from bireme_lab.embedded.builtin.priorities import SYSTEM_CLASSES, priority_admission
from bireme_lab.embedded.builtin.quotas import quota_admission
from bireme_lab.embedded.builtin.rbac import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    Rights,
    first_bindings,
    first_roles,
)
from bireme_lab.embedded.builtin.reviews import reviews
from bireme_lab.embedded.builtin.webhooks import webhook_admission
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.budgets import Budgets
from bireme_lab.embedded.controllers.garbage import GarbageCollector
from bireme_lab.embedded.controllers.jobs import Jobs
from bireme_lab.embedded.controllers.namespaces import Namespaces
from bireme_lab.embedded.controllers.nodes import Nodes
from bireme_lab.embedded.controllers.quotas import Quotas
from bireme_lab.embedded.controllers.replicas import Replicas
from bireme_lab.embedded.kubelets import Kubelets
from bireme_lab.embedded.scheduler import leadership, scheduler
from bireme_lab.embedded.scheduler.configuration import DEFAULT, Configuration
from bireme_lab.embedded.scheduler.scheduler import Scheduler

_CONTROLLERS: Final = ApiUser(
    "system:kube-controller-manager", ("system:masters", "system:authenticated")
)
_log = logging.getLogger(__name__)
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


def make_api(now: Callable[[], float], tokens: AccountTokens | None = None) -> ApiServer:
    """Return an API server with Kubernetes' kinds, its first objects, and definitions at work."""
    admission = Admission(behaviours(), advice=ADVICE)
    api = ApiServer(now, ResourceKinds(kinds.KINDS), admission=admission)
    rights = Rights(api.store)
    api.authorizer = rights.authorize
    policies = PolicyAdmission(api.store, api.resources, rights, api.admission.schema_of)
    api.admission.mutators += [
        account_admission(api.store),
        default_limits(api.store),
        priority_admission(api.store),
        policies.mutate,
    ]
    api.admission.rules = check_rules
    api.admission.validators += [
        limit_admission(api.store),
        security_admission(api.store, api.warn),
        policies.validate,
        webhook_admission(api.store),
        quota_admission(api.store, api.now),
    ]
    api.store.collection(kinds.DEFINITIONS).subscribers.append(Definitions(api).changed)
    tokens = tokens or AccountTokens()
    tokens.register(api)
    api.reviews |= reviews(rights, tokens)
    api.documents |= dict.fromkeys(("/healthz", "/livez", "/readyz"), _healthy)
    for name in _NAMESPACES:
        put(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    for role in first_roles():
        put(api, CLUSTER_ROLES, role)
    for binding in first_bindings():
        put(api, CLUSTER_BINDINGS, binding)
    for name, value in SYSTEM_CLASSES.items():
        put(api, kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    return api


def put(api: ApiServer, path: str, obj: Object) -> Object:
    """Create an object as the administrator; ``path`` is that of its collection."""
    answer = api.answer(
        ApiRequest("POST", path, body=msgspec.json.encode(obj), user_agent="embedded")
    )
    if not isinstance(answer, ApiAnswer) or answer.code >= 300:
        message = answer.body.get("message") if isinstance(answer, ApiAnswer) else "a watch"
        raise ValueError(f"{path} does not take {obj['metadata']['name']}: {message}")
    created: Object = answer.body
    return created


def _healthy(_: ApiRequest) -> ApiAnswer:
    return ApiAnswer(200, "ok")


@dataclass(eq=False)
class Definitions:
    """Serves the kinds of CustomResourceDefinitions while these exist."""

    api: ApiServer
    _served: dict[str, list[str]] = field(default_factory=dict)

    def changed(self, change: StoreChange) -> None:
        """Follow a change of a definition."""
        definition = change.object
        name = definition["metadata"]["name"]
        for path in self._served.pop(name, []):
            self.api.resources.remove(path)
        if change.new is None:
            group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
            for version in definition["spec"]["versions"]:
                path = f"/apis/{group}/{version['name']}/{plural}"
                for key in list(self.api.store.collection(path).objects):
                    self.api.store.write(path, key, None)
            return
        served = list(custom_resources(change.new))
        for resource in served:
            self.api.resources.add(resource)
        self._served[name] = [resource.path for resource in served]


@dataclass(eq=False)
class EmbeddedCluster:
    """API server, scheduler, kubelets and controllers; ``async with`` runs them.

    Attributes:
        configuration: Profiles and extenders of a second scheduler, beside the default one.
        scheduler_user: The user of the second scheduler.
        users: By bearer token, who sends it.
    """

    configuration: Configuration = DEFAULT
    scheduler_user: ApiUser = scheduler.USER
    users: Mapping[str, ApiUser] = field(default_factory=dict)
    port: int = 0
    api: ApiServer = field(init=False)
    http: ApiHttpServer = field(init=False)
    kubelets: Kubelets = field(init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tokens = AccountTokens(self.users)
        self.api = make_api(wall_clock, tokens)
        self.http = ApiHttpServer(self.api, port=self.port, authenticate=tokens.user)
        self.kubelets = Kubelets(self._client(kubelets.USER))
        pod_verbs.register(self.api, self.kubelets.logs)

    def _client(self, user: ApiUser) -> Client:
        return Client(self.api, user, time.monotonic)

    async def __aenter__(self) -> Self:
        controllers = self._client(_CONTROLLERS)
        garbage, nodes = GarbageCollector(controllers), Nodes(controllers)
        namespaces, jobs = Namespaces(controllers), Jobs(controllers)
        budgets, replicas = Budgets(controllers), Replicas(controllers)
        quotas = Quotas(controllers)
        for part in (garbage, namespaces, nodes, jobs, budgets, replicas, quotas, self.kubelets):
            part.start()
        loop = asyncio.get_running_loop()

        def follow_new_kinds(_: StoreChange) -> None:
            # Not here: the store is still handing this change to its other subscribers.
            loop.call_soon(garbage.start)

        self.api.store.collection(kinds.DEFINITIONS).subscribers.append(follow_new_kinds)
        runs = [
            Scheduler(self._client(scheduler.USER), DEFAULT).run(),
            *(self.kubelets.pods.run(), self.kubelets.nodes.run()),
            *(garbage.work.run(), namespaces.work.run(), jobs.work.run(), budgets.work.run()),
            *(nodes.work.run(), nodes.evictions.run(), replicas.work.run(), quotas.work.run()),
        ]
        for each in runs:
            self._spawn(each)
        if self.configuration is not DEFAULT:
            self.start_scheduler(self.configuration)
        await self.http.__aenter__()
        return self

    def start_scheduler(self, configuration: Configuration) -> asyncio.Task[None]:
        """Start one more scheduler; it ends with the cluster, or when its task is cancelled."""
        one_more = Scheduler(self._client(self.scheduler_user), configuration)
        return self._spawn(_lead(one_more))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a part of the cluster; the log tells where it fails."""
        task = asyncio.create_task(work)
        task.add_done_callback(_report)
        self._tasks.append(task)
        return task

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.http.__aexit__()


async def _lead(one: Scheduler) -> None:
    """Run a scheduler, and hold the Lease of its configuration as long."""
    async with asyncio.TaskGroup() as group:
        group.create_task(one.run())
        if one.configuration.lease is not None:
            group.create_task(leadership.hold(one.client, *one.configuration.lease))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("a part of the embedded cluster has failed", exc_info=error)


def wall_clock() -> float:
    return time.time()  # noqa: TID251  # the embedded cluster lives in real time
