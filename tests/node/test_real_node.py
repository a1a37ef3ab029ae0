"""Duties of a real node that tests of Bireme's own pods rely on."""

from typing import Final

import pytest

from testbed.controlplane.nodes import FAKE_TAINT
from testbed.controlplane.process import answers
from testbed.scenario.tenant import Tenant
from tests.node.real_pods import await_end, await_ready, logs, python_pod

RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SERVER: Final = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
CALL_THE_API: Final = """
import json, ssl, urllib.error, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
trusted = ssl.create_default_context(cafile=f"{account}/ca.crt")
token, namespace = (open(f"{account}/{name}").read() for name in ("token", "namespace"))
for plural in ("configmaps", "secrets"):
    url = f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/{plural}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        print(plural, urllib.request.urlopen(request, context=trusted, timeout=20).status)
    except urllib.error.HTTPError as refusal:
        print(plural, refusal.status)
"""


def test_a_pod_runs_answers_exec_and_tells_its_exit_code(tenant: Tenant) -> None:
    tenant.create(python_pod("stays", "import time; print('here', flush=True); time.sleep(600)"))
    tenant.create(python_pod("fails", "raise SystemExit(3)"))
    pod = await_ready(tenant, "stays")
    assert pod["spec"]["nodeName"] == tenant.cluster.node.name
    tenant.eventually(lambda: logs(tenant, "stays"), lambda text: text == "here\n")
    where = ("stays", f"--namespace={tenant.namespace}", "--")
    assert tenant.cluster.kubectl("exec", *where, "hostname") == "stays\n"
    assert await_end(tenant, "fails")["exitCode"] == 3
    tenant.eventually(lambda: tenant.status("fails", "Pod")["phase"], lambda p: p == "Failed")


def test_a_service_is_reached_by_name_by_address_and_from_outside(tenant: Tenant) -> None:
    tenant.create(python_pod("server", SERVER))
    ports = [{"port": 80, "targetPort": 8000}]
    spec = {"selector": {"app": "server"}, "ports": ports}
    tenant.create({"kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    headless = {"selector": {"app": "server"}, "clusterIP": "None"}
    tenant.create({"kind": "Service", "metadata": {"name": "gang"}, "spec": headless})
    await_ready(tenant, "server")
    address = tenant.get("Service", "web")["spec"]["clusterIP"]
    program = f"""
        import urllib.request, time
        for url in ("http://web", "http://{address}", "http://gang:8000"):
            for attempt in range(40):
                try:
                    print(url, urllib.request.urlopen(url, timeout=5).status)
                    break
                except OSError as error:
                    time.sleep(0.5)
    """
    tenant.create(python_pod("client", program))
    assert await_end(tenant, "client")["exitCode"] == 0
    assert logs(tenant, "client") == (
        f"http://web 200\nhttp://{address} 200\nhttp://gang:8000 200\n"
    )
    assert answers(f"http://{address}/")


def test_a_pods_token_is_good_for_what_its_role_allows(tenant: Tenant) -> None:
    where = f"--namespace={tenant.namespace}"
    tenant.cluster.kubectl("create", "role", "r", "--verb=list", "--resource=configmaps", where)
    account = f"--serviceaccount={tenant.namespace}:default"
    tenant.cluster.kubectl("create", "rolebinding", "r", "--role=r", account, where)
    tenant.create(python_pod("caller", CALL_THE_API))
    assert await_end(tenant, "caller")["exitCode"] == 0
    assert logs(tenant, "caller") == "configmaps 200\nsecrets 403\n"


def test_limits_and_rights_are_enforced(tenant: Tenant) -> None:
    limits = {"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}
    tenant.create(python_pod("eater", "x = bytearray(1 << 30)", container={"resources": limits}))
    tenant.create(
        python_pod("root", "print()", container={"securityContext": {"runAsNonRoot": True}})
    )
    program = """
        import os
        print(os.getuid())
        for line in open("/proc/self/status"):
            if line.startswith(("CapEff", "NoNewPrivs", "Seccomp:")):
                print(*line.split())
        try:
            open("/file", "w")
        except OSError as error:
            print(error)
    """
    tenant.create(python_pod("bound", program, container={"securityContext": RESTRICTED}))
    assert await_end(tenant, "eater")["exitCode"] == 137
    assert await_end(tenant, "eater")["reason"] == "OOMKilled"
    assert await_end(tenant, "bound")["exitCode"] == 0
    assert logs(tenant, "bound").splitlines() == [
        "65532",
        "CapEff: 0000000000000000",
        "NoNewPrivs: 1",
        "Seccomp: 2",
        "[Errno 30] Read-only file system: '/file'",
    ]

    def waiting() -> str:
        states = tenant.status("root", "Pod").get("containerStatuses") or [{"state": {}}]
        return str(states[0]["state"].get("waiting", {}).get("message", ""))

    tenant.eventually(waiting, lambda message: "runAsNonRoot" in message)


def test_nothing_outside_the_machine_is_reached(tenant: Tenant) -> None:
    program = """
        import socket
        for host in ("192.0.2.1", "example.com"):
            try:
                socket.create_connection((host, 80), timeout=5)
            except OSError as error:
                print(type(error).__name__, error)
    """
    tenant.create(python_pod("caller", program))
    assert await_end(tenant, "caller")["exitCode"] == 0
    lines = logs(tenant, "caller").splitlines()
    assert lines[0] == "OSError [Errno 101] Network is unreachable"
    assert lines[1].startswith("gaierror")


def test_fake_nodes_take_those_pods_only_that_tolerate_them(tenant: Tenant) -> None:
    tolerations = [{"key": FAKE_TAINT["key"], "operator": "Exists"}]
    fake = python_pod("fake", "raise SystemExit(1)", nodeName="", tolerations=tolerations)
    fake["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-00"}
    tenant.create(fake)
    await_ready(tenant, "fake")
    assert tenant.get("Pod", "fake")["spec"]["nodeName"] == "gpu-00"
    tenant.create(
        python_pod("greedy", "print()", cpu="90")
    )  # there is room for it on fake nodes only
    tenant.eventually(
        lambda: tenant.status("greedy", "Pod").get("conditions", [{}])[0].get("message", ""),
        lambda message: "had untolerated taint" in message,
    )


@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_pods_outlive_a_restart_of_what_runs_them(tenant: Tenant, program: str) -> None:
    tenant.create(python_pod("stays", "import time; print('here', flush=True); time.sleep(600)"))
    before = await_ready(tenant, "stays")["status"]["containerStatuses"][0]
    node = tenant.cluster.node
    node.kill(program)
    node.start(program).wait_ready()
    tenant.create(python_pod("next", "print('next')"))
    assert await_end(tenant, "next")["exitCode"] == 0
    after = await_ready(tenant, "stays")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    tenant.eventually(lambda: logs(tenant, "stays"), lambda text: text == "here\n")
