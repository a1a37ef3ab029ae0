"""The scheduler's loop: one pod at a time, through filters, extenders and scores, to a node."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import aiohttp
import msgspec

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.objects import is_ended, key_of, object_path
from bireme_lab.embedded.scheduler import node_affinity, pod_affinity, preemption
from bireme_lab.embedded.scheduler.cache import (
    ANY_ADDRESS,
    Amounts,
    Cache,
    host_ports,
    request_of,
)
from bireme_lab.embedded.scheduler.configuration import Configuration, Extender, Profile
from bireme_lab.embedded.scheduler.preemption import priority_of

_FLUSH_SECONDS: Final = 300.0
_BACKOFF_SECONDS: Final = (1.0, 10.0)
_MAX_NODE_SCORE: Final = 100
_MAX_EXTENDER_SCORE: Final = 10
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """A pod that waits: how often it was tried, when last, and when it is tried again."""

    uid: str
    added: int
    tries: int = 0
    last_try: float = 0.0
    not_before: float = 0.0


@dataclass(eq=False)
class Scheduler:
    """Binds the pods of its profiles; runs as a task of the cluster's loop."""

    client: Client
    configuration: Configuration
    cache: Cache = field(default_factory=Cache)
    _queue: dict[Key, _Waiting] = field(default_factory=dict)
    _pods: dict[Key, Object] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _count: int = 0

    async def run(self) -> None:
        """Schedule pods until it is cancelled."""
        names = [profile.name for profile in self.configuration.profiles]
        self.client.follow(kinds.NODES, self._node_changed)
        self.client.follow(kinds.PODS, self._pod_changed)
        _log.info("scheduler serves %s", ", ".join(names))
        async with aiohttp.ClientSession() as session:
            while True:
                self._woken.clear()
                key = self._next()
                if key is not None:
                    await self._schedule(key, session)
                    continue
                now = self.client.clock()
                due = min((w.not_before for w in self._queue.values()), default=now + 60)
                try:
                    async with asyncio.timeout(max(due - now, 0.001)):
                        await self._woken.wait()
                except TimeoutError:
                    pass

    # --- what it knows -------------------------------------------------------------------------

    def _node_changed(self, change: StoreChange) -> None:
        node = change.object
        self.cache.put_node(node["metadata"]["name"], change.new)
        self._retry_all()

    def _pod_changed(self, change: StoreChange) -> None:
        pod = change.object
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if change.new is None:
            self._pods.pop(key, None)
            self._queue.pop(key, None)
            self.cache.put_pod(uid, None)
            self._retry_all()
            return
        self._pods[key] = pod
        if pod["spec"].get("nodeName"):
            self._queue.pop(key, None)
            self.cache.put_pod(uid, pod)
            if change.old is not None and is_ended(pod) and not is_ended(change.old):
                self._retry_all()
            return
        is_ours = self._profile(pod) is not None
        is_gated = bool(pod["spec"].get("schedulingGates"))
        if not is_ours or is_gated or pod["metadata"].get("deletionTimestamp"):
            self._queue.pop(key, None)
            return
        waiting = self._queue.get(key)
        if waiting is None or waiting.uid != uid:
            self._count += 1
            self._queue[key] = _Waiting(uid, self._count)
        elif change.old is not None and change.old["spec"] != pod["spec"]:
            waiting.not_before = 0.0
        self._woken.set()

    def _retry_all(self) -> None:
        """Try what waits again, after its backoff: something may have made room."""
        for waiting in self._queue.values():
            end_of_backoff = waiting.last_try + _backoff(waiting.tries)
            waiting.not_before = min(waiting.not_before, end_of_backoff)
        self._woken.set()

    def _profile(self, pod: Object) -> Profile | None:
        name = pod["spec"].get("schedulerName")
        return next((p for p in self.configuration.profiles if p.name == name), None)

    def _next(self) -> Key | None:
        """Return the pod whose turn it is: by priority, then as they came."""
        now = self.client.clock()
        due = [
            (-int(self._pods[key]["spec"].get("priority") or 0), waiting.added, key)
            for key, waiting in self._queue.items()
            if waiting.not_before <= now
        ]
        return min(due)[2] if due else None

    # --- one pod -------------------------------------------------------------------------------

    async def _schedule(self, key: Key, session: aiohttp.ClientSession) -> None:
        waiting, pod = self._queue[key], self._pods[key]
        profile = self._profile(pod)
        if profile is None:
            return
        waiting.tries += 1
        waiting.last_try = self.client.clock()
        waiting.not_before = waiting.last_try + _FLUSH_SECONDS
        refusals = self._filter(pod)
        names = [name for name, obstacle in refusals.items() if not obstacle]
        for extender in self.configuration.extenders:
            if names and extender.filter_verb:
                names, refused = await self._ask_filter(session, extender, pod, names)
                refusals |= refused
        if self._queue.get(key) is not waiting:
            return  # it went or changed meanwhile
        if not names:
            self._report(key, pod, refusals, profile)
            return
        node = names[0]
        if len(names) > 1:
            scores = self._score(profile, pod, names)
            for extender in self.configuration.extenders:
                if extender.prioritize_verb:
                    scores = await self._add_scores(session, extender, pod, names, scores)
            if self._queue.get(key) is not waiting:
                return
            node = max(names, key=lambda name: (scores[name], name))
        del self._queue[key]
        self._bind(key, pod, node)

    def _filter(
        self, pod: Object, names: Iterable[str] | None = None, *, counts_nominated: bool = True
    ) -> dict[str, str]:
        """Return, by node (all without ``names``), a filter's words against it; empty for none."""
        pinned = node_affinity.pinned_names(pod)
        nodes = list(self.cache.nodes.values())
        placements = list(self.cache.placements())
        has_rules = pod_affinity.has_rules(pod) or any(
            pod_affinity.has_rules(other) for _, other in placements
        )
        labels = self.client.namespace_labels() if has_rules else {}
        request, ports = request_of(pod["spec"]), host_ports(pod["spec"])
        reserved = self._nominations(pod) if counts_nominated else {}
        refusals = {}
        for name in self.cache.nodes if names is None else names:
            node = self.cache.nodes[name]
            if pinned is not None and name not in pinned:
                refusals[name] = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
                continue
            obstacle = self._against(pod, node, request, reserved.get(name, {}), ports)
            if not obstacle and has_rules:
                obstacle = pod_affinity.obstacle(pod, node, nodes, placements, labels)
            refusals[name] = obstacle
        return refusals

    def _against(
        self,
        pod: Object,
        node: Object,
        request: Mapping[str, int],
        reserved: Mapping[str, int],
        ports: set[Any],
    ) -> str:
        spec, name = node["spec"], node["metadata"]["name"]
        if spec.get("unschedulable") and not node_affinity.tolerates(pod, _UNSCHEDULABLE):
            return "node(s) were unschedulable"
        taint = node_affinity.untolerated_taint(pod, spec.get("taints") or ())
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if not node_affinity.allows(pod, node):
            return "node(s) didn't match Pod's node affinity/selector"
        use = self.cache.use(name)
        if ports and any(_clash(ports, host_ports(p["spec"])) for p in use.pods.values()):
            return "node(s) didn't have free ports for the requested pod ports"
        capacity = self.cache.capacities[name]
        lacking = [
            "Too many pods" if resource == "pods" else f"Insufficient {resource}"
            for resource, amount in sorted(request.items())
            if amount
            and amount + use.used.get(resource, 0) + reserved.get(resource, 0)
            > capacity.get(resource, 0)
        ]
        return ", ".join(lacking)

    def _nominations(self, pod: Object) -> dict[str, Amounts]:
        """Return by node what waiting pods of no lower priority request where room is made."""
        totals: dict[str, Amounts] = {}
        for key, waiting in self._queue.items():
            other = self._pods[key]
            node = (other.get("status") or {}).get("nominatedNodeName")
            is_rival = waiting.uid != pod["metadata"]["uid"]
            if node and is_rival and priority_of(other) >= priority_of(pod):
                total = totals.setdefault(node, {})
                for resource, amount in request_of(other["spec"]).items():
                    total[resource] = total.get(resource, 0) + amount
        return totals

    def _score(self, profile: Profile, pod: Object, names: Sequence[str]) -> dict[str, float]:
        scores = dict.fromkeys(names, 0.0)
        if weight := profile.weights.get("NodeAffinity"):
            raw = {n: node_affinity.preference(pod, self.cache.nodes[n]) for n in names}
            top = max(raw.values())
            for name in names:
                scores[name] += weight * (_MAX_NODE_SCORE * raw[name] / top if top else 0)
        if weight := profile.weights.get("TaintToleration"):
            soft = {name: self._soft_taints(pod, name) for name in names}
            top = max(soft.values())
            for name in names:
                share = 1 - soft[name] / top if top else 1
                scores[name] += weight * _MAX_NODE_SCORE * share
        if weight := profile.weights.get("NodeResourcesFit"):
            request = request_of(pod["spec"])
            for name in names:
                scores[name] += weight * self._fit(profile, request, name)
        return scores

    def _soft_taints(self, pod: Object, name: str) -> int:
        taints = self.cache.nodes[name]["spec"].get("taints") or ()
        return sum(
            t["effect"] == "PreferNoSchedule" and not node_affinity.tolerates(pod, t)
            for t in taints
        )

    def _fit(self, profile: Profile, request: Mapping[str, int], name: str) -> float:
        capacity, used = self.cache.capacities[name], self.cache.use(name).used
        total = weights = 0.0
        for resource, weight in profile.resource_weights.items():
            if not capacity.get(resource):
                continue
            share = min(
                1.0, (used.get(resource, 0) + request.get(resource, 0)) / capacity[resource]
            )
            fit = share if profile.strategy == "MostAllocated" else 1 - share
            total += weight * _MAX_NODE_SCORE * fit
            weights += weight
        return total / weights if weights else 0.0

    # --- extenders -----------------------------------------------------------------------------

    async def _ask_filter(
        self,
        session: aiohttp.ClientSession,
        extender: Extender,
        pod: Object,
        names: Sequence[str],
    ) -> tuple[list[str], dict[str, str]]:
        """Return the nodes that an extender leaves, and its words against the others."""
        try:
            answer = await self._ask(session, extender, extender.filter_verb, pod, names)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            if extender.is_ignorable:
                _log.info("extender ignored: %s", error)
                return list(names), {}
            return [], dict.fromkeys(names, f"extender failed: {error}")
        if answer.get("Error"):
            return [], dict.fromkeys(names, str(answer["Error"]))
        passed = answer.get("NodeNames")
        remaining = list(names) if passed is None else [n for n in names if n in set(passed)]
        refused: dict[str, str] = {
            **(answer.get("FailedNodes") or {}),
            **(answer.get("FailedAndUnresolvableNodes") or {}),
        }
        return remaining, refused

    async def _add_scores(
        self,
        session: aiohttp.ClientSession,
        extender: Extender,
        pod: Object,
        names: Sequence[str],
        scores: dict[str, float],
    ) -> dict[str, float]:
        try:
            answer = await self._ask(session, extender, extender.prioritize_verb, pod, names)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            _log.info("priorities of the extender ignored: %s", error)
            return scores
        factor = extender.weight * _MAX_NODE_SCORE / _MAX_EXTENDER_SCORE
        for each in answer or ():
            scores[each["Host"]] += factor * each["Score"]
        return scores

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        extender: Extender,
        verb: str,
        pod: Object,
        names: Sequence[str],
    ) -> Any:
        nodes = None
        if not extender.sends_names:
            nodes = {"items": [self.cache.nodes[name] for name in names]}
        body = {"Pod": pod, "Nodes": nodes, "NodeNames": list(names)}
        async with session.post(
            f"{extender.url}/{verb}",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=extender.timeout_seconds),
        ) as reply:
            reply.raise_for_status()
            return msgspec.json.decode(await reply.read())

    # --- results -------------------------------------------------------------------------------

    def _bind(self, key: Key, pod: Object, node: str) -> None:
        """Bind a pod; a refusal puts it back after its backoff."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key[1], "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        answer = self.client.send("POST", f"{object_path(kinds.PODS, key)}/binding", body)
        if answer.code < 300:
            text = f"Successfully assigned {key[0]}/{key[1]} to {node}"
            self.client.post_event(pod, "Normal", "Scheduled", text, self._profile_name(pod))
            return
        _log.info("binding of %s refused: %s", key, answer.body.get("message"))
        current = self._pods.get(key)
        if current is not None and not current["spec"].get("nodeName"):
            self._count += 1
            now, uid = self.client.clock(), pod["metadata"]["uid"]
            self._queue[key] = _Waiting(uid, self._count, 1, now, now + _BACKOFF_SECONDS[0])

    def _report(self, key: Key, pod: Object, refusals: Mapping[str, str], profile: Profile) -> None:
        """Preempt other pods for one that no node takes, and write onto it why."""
        counts: Counter[str] = Counter()
        for obstacle in refusals.values():
            counts.update(
                obstacle.split(", ") if obstacle.startswith(("Insuff", "Too many")) else [obstacle]
            )
        reasons = ", ".join(sorted(f"{count} {why}" for why, count in counts.items()))
        message = f"0/{len(refusals)} nodes are available: {reasons}."
        if not refusals:
            message = "no nodes available to schedule pods"
        elif profile.preempts:
            message = f"{message} preemption: {self._preempt(key, pod, refusals)}"
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        self.client.set_pod_condition(key, pod["metadata"]["uid"], condition)
        name = self._profile_name(pod)
        self.client.post_event(pod, "Warning", "FailedScheduling", message, name)

    def _preempt(self, key: Key, pod: Object, refusals: Mapping[str, str]) -> str:
        """Make room for a pod on one node; return kube-scheduler's words about the attempt."""
        if obstacle := preemption.may_preempt(pod, self.cache):
            return obstacle

        def fits(name: str, *, counts_nominated: bool = True) -> bool:
            return not self._filter(pod, [name], counts_nominated=counts_nominated)[name]

        fits_alone = partial(fits, counts_nominated=False)
        candidates = [name for name in refusals if preemption.helps(name, self.cache, fits_alone)]
        budgets = self.client.objects(kinds.BUDGETS)
        choice = preemption.find_preemption(pod, candidates, self.cache, budgets, fits)
        self._nominate(key, choice.node if choice is not None else "")
        if choice is None:
            counts = Counter(
                "No preemption victims found for incoming pod."
                if name in candidates
                else "Preemption is not helpful for scheduling."
                for name in refusals
            )
            reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
            return f"0/{len(refusals)} nodes are available: {reasons}"
        for victim in choice.victims:
            self._evict(victim, pod, choice.node)
        count = len(choice.victims)
        return (
            f"found a potential placement for pod on node {choice.node}, preempting {count} victims"
        )

    def _nominate(self, key: Key, node: str) -> None:
        """Write onto a pod the node that becomes free for it; empty for none any more."""
        status = dict(self._pods[key].get("status") or {})
        status.pop("nominatedNodeName", None)
        if node:
            status["nominatedNodeName"] = node
        self.client.set_status(kinds.PODS, key, status)

    def _evict(self, victim: Object, pod: Object, node: str) -> None:
        key, name = key_of(victim), self._profile_name(pod)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": preemption.REASON,
            "message": f"{name}: preempting to accommodate a higher priority pod",
        }
        self.client.set_pod_condition(key, victim["metadata"]["uid"], condition)
        self.client.send("DELETE", object_path(kinds.PODS, key))
        text = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self.client.post_event(victim, "Normal", "Preempted", text, name)

    @staticmethod
    def _profile_name(pod: Object) -> str:
        return str(pod["spec"].get("schedulerName"))


_UNSCHEDULABLE: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
USER: Final = ApiUser("system:kube-scheduler", ("system:authenticated",))


def _backoff(tries: int) -> float:
    first, longest = _BACKOFF_SECONDS
    return min(first * 2.0 ** max(tries - 1, 0), longest)


def _clash(ports: set[Any], others: set[Any]) -> bool:
    """Return whether two pods take one port of a node, at one address or at all."""
    return any(
        (protocol, number) == (other_protocol, other_number)
        and (host == other_host or ANY_ADDRESS in (host, other_host))
        for protocol, host, number in ports
        for other_protocol, other_host, other_number in others
    )
