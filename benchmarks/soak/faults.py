"""Faults that strike one after the other: those that end a program, and those it must live through.

A fault ends before the next one begins. What a slope is drawn through is one life of a program, so
the kills come in the first and the last part of a run, and between them only what a program lives
through.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.process import Process
from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.fakeapi.faults import Fault, every, writes
from testbed.faultproxy import FaultProxy
from testbed.scenario.tenant import Tenant

LEASE_SECONDS: Final = 20
"""Shorter than a pause or a restart below, a leader would end with its lease."""
NODE_LOST_SECONDS: Final = 20
_STALL_SECONDS: Final = 6.0
_OUTAGE_SECONDS: Final = 18.0
_TROUBLE_SECONDS: Final = 15.0
_NOT_READY_SECONDS: Final = 45.0
_READY_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that a fault may strike."""

    stack: BiremeStack
    keeper: Keeper
    proxies: tuple[FaultProxy, ...]
    tenants: tuple[Tenant, ...]
    nodes: int
    gpus: int
    draw: random.Random


# --- what a program lives through -----------------------------------------------------------


def cut_watches(ground: Ground) -> None:
    """Break every open watch of operator and extender."""
    for proxy in ground.proxies:
        proxy.cut_watches()


def hold_requests(ground: Ground) -> None:
    """Let nothing of operator and extender pass for a while."""
    for proxy in ground.proxies:
        proxy.hold()
    time.sleep(_STALL_SECONDS)
    for proxy in ground.proxies:
        proxy.release()


def refuse_requests(ground: Ground) -> None:
    """Answer every third request with 429 or 500 for a while."""
    for proxy in ground.proxies:
        slow_down = Fault(status=429, retry_after_seconds=1)
        proxy.faults.add(slow_down, every(3, lambda *_: True), times=20)
        proxy.faults.add(Fault(status=500), every(3, lambda *_: True), times=20)
    _let_pass_again(ground)


def lose_answers(ground: Ground) -> None:
    """Do every fourth write and hang up before its author learns of it."""
    for proxy in ground.proxies:
        proxy.faults.add(Fault(drop_answer=True), every(4, writes), times=20)
    _let_pass_again(ground)


def delay_requests(ground: Ground) -> None:
    """Answer every request two seconds late for a while."""
    for proxy in ground.proxies:
        proxy.faults.add(Fault(delay_seconds=2.0), times=None)
    _let_pass_again(ground)


def _let_pass_again(ground: Ground) -> None:
    time.sleep(_TROUBLE_SECONDS)
    for proxy in ground.proxies:
        proxy.faults.clear()


def stall_api_server(ground: Ground) -> None:
    """Stop the API server in its tracks (SIGSTOP) for a while."""
    server = ground.stack.cluster.component("kube-apiserver")
    server.pause()
    time.sleep(_STALL_SECONDS)
    server.resume()


def restart_api_server(ground: Ground) -> None:
    """Kill the API server (SIGKILL) and start it again at once."""
    _restart(ground, "kube-apiserver")


def restart_etcd(ground: Ground) -> None:
    """Kill etcd (SIGKILL) and start it again at once."""
    _restart(ground, "etcd")


def restart_controllers(ground: Ground) -> None:
    """Kill kube-controller-manager (SIGKILL) and start it again at once."""
    _restart(ground, "kube-controller-manager")


def _restart(ground: Ground, name: str) -> None:
    component = ground.stack.cluster.component(name)
    component.stop()
    component.start()


def expire_watches(ground: Ground) -> None:
    """Make every known revision too old to watch from: 410, and all is listed anew."""
    ground.stack.cluster.expire_watches()


def pause_programs(ground: Ground) -> None:
    """Stop Bireme's programs in their tracks (SIGSTOP) for a while, one after the other."""
    for process in ground.stack.processes:
        process.pause()
        time.sleep(_STALL_SECONDS)
        process.resume()


def node_not_ready(ground: Ground) -> None:
    """Let a node's kubelet say it is not ready, for longer than Bireme waits for it."""
    node = _some_node(ground)
    cluster = ground.stack.cluster
    cluster.kubectl("annotate", "node", node, "fake.bireme.dev/not-ready=1")
    time.sleep(_NOT_READY_SECONDS)
    cluster.kubectl("annotate", "node", node, "fake.bireme.dev/not-ready-")


def node_deleted(ground: Ground) -> None:
    """Delete a node under its pods; it comes back after a while."""
    node, cluster = _some_node(ground), ground.stack.cluster
    cluster.kubectl("delete", "node", node, "--wait=false")
    time.sleep(_TROUBLE_SECONDS)
    every_node = fake_nodes(ground.nodes, gpus=ground.gpus, racks=2)
    cluster.add_nodes([each for each in every_node if each["metadata"]["name"] == node])


def node_cordoned(ground: Ground) -> None:
    """Cordon a node for a while."""
    node, cluster = _some_node(ground), ground.stack.cluster
    cluster.kubectl("cordon", node)
    time.sleep(_TROUBLE_SECONDS)
    cluster.kubectl("uncordon", node)


def node_tainted(ground: Ground) -> None:
    """Drive everything off a node by a taint, for a while."""
    node, cluster = _some_node(ground), ground.stack.cluster
    cluster.kubectl("taint", "node", node, "maintenance=now:NoExecute")
    time.sleep(_TROUBLE_SECONDS)
    cluster.kubectl("taint", "node", node, "maintenance-")


def pod_deleted(ground: Ground) -> None:
    """Delete one replica of a running gang by hand."""
    label = "bireme.dev/pod-group"
    pods = [pod for tenant in ground.tenants for pod in tenant.all("Pod", label)]
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    if running:
        meta = ground.draw.choice(running)["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        ground.stack.cluster.api.request("DELETE", path)


def _some_node(ground: Ground) -> str:
    return f"gpu-{ground.draw.randrange(ground.nodes):02d}"


# --- what ends a program --------------------------------------------------------------------


def kill_operator(ground: Ground) -> None:
    """Kill the operator (SIGKILL)."""
    _kill(ground.stack.operator())


def stop_operator(ground: Ground) -> None:
    """End the operator politely (SIGTERM): it hands its lease over."""
    with ground.keeper.leaves_alone(ground.stack.operator()):
        ground.stack.operator().terminate()


def kill_extender(ground: Ground) -> None:
    """Kill the extender (SIGKILL)."""
    _kill(ground.stack.extender)


def kill_scheduler(ground: Ground) -> None:
    """Kill the second kube-scheduler (SIGKILL)."""
    _kill(ground.stack.scheduler)


def kill_all(ground: Ground) -> None:
    """Kill operator, extender and kube-scheduler at once (SIGKILL)."""
    for process in ground.stack.processes:
        if process.running:
            process.kill()
    for process in ground.stack.processes:
        process_ready(process)


def api_server_outage(ground: Ground) -> None:
    """Take the API server away until the leader has lost its lease."""
    server = ground.stack.cluster.component("kube-apiserver")
    server.stop()
    time.sleep(_OUTAGE_SECONDS)
    server.start()


def _kill(process: Process) -> None:
    if process.running:
        process.kill()
    process_ready(process)


def process_ready(process: Process) -> None:
    """Return when the keeper has started a program again and it says that it is ready."""
    until = time.monotonic() + _READY_SECONDS
    while not process.running:
        if time.monotonic() > until:
            raise TimeoutError(f"nobody started {process.name} again")
        time.sleep(0.1)
    process.wait_ready(_READY_SECONDS)


FaultOf = Callable[[Ground], None]
KILLS: Final[tuple[FaultOf, ...]] = (
    kill_operator,
    kill_extender,
    kill_scheduler,
    stop_operator,
    api_server_outage,
    kill_all,
)
ENDURED: Final[tuple[FaultOf, ...]] = (
    cut_watches,
    node_not_ready,
    stall_api_server,
    pod_deleted,
    restart_api_server,
    refuse_requests,
    node_deleted,
    hold_requests,
    restart_controllers,
    lose_answers,
    node_cordoned,
    expire_watches,
    delay_requests,
    node_tainted,
    restart_etcd,
    pause_programs,
)
