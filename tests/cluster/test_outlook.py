"""What the leader foresees, through the real API server's proxy: to each what they may read."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
import yaml

from bireme.cli import main
from bireme.replay.outlook_reply import PATH
from testbed.board import board
from testbed.controlplane.leader import SERVICE, SYSTEM, own_address, serve_leader
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import PATIENT, gpu_cluster
from testbed.scenario.helm import Helm, account_kubeconfig
from testbed.scenario.manifests import task, training_job
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster
SWITCHED_ON = "--set=operator.settings.outlook=true"


IF_SHORT = ("--what-if", "estimate=1m", "-o", "json")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    env = {
        "BIREME_OUTLOOK": "true",
        "BIREME_LEASE_NAMESPACE": SYSTEM,
    }
    internals = {**PATIENT, "outlook_interval_seconds": 0}
    folder = tmp_path_factory.mktemp("stack")
    with (
        gpu_cluster("outlook", 2, 8) as cluster,
        BiremeStack(cluster, folder, env, internals=internals) as stack,
    ):
        chart = Helm(tmp_path_factory.mktemp("helm")).template(SWITCHED_ON)
        (role,) = (
            each
            for each in yaml.safe_load_all(chart)
            if (each["kind"], each["metadata"]["name"]) == ("Role", SERVICE)
        )
        operator = stack.operator()
        operator.env["BIREME_METRICS_ADDRESS"] = f"0.0.0.0:{operator.port}"  # as in a pod
        serve_leader(cluster, own_address(), operator.port)
        cluster.kubectl("create", "-f", "-", input=json.dumps(role))
        yield stack.start()


def pages(address: str) -> Callable[[str], str]:
    """Open the board at ``address``, as a browser without scripts does; what it has at a path."""
    opener = build_opener(HTTPCookieProcessor())
    opener.open(address, timeout=30).close()

    def page(path: str) -> str:
        with opener.open(urljoin(address, path), timeout=60) as answer:
            return str(answer.read().decode())

    return page


def test_a_reader_of_one_namespace_sees_that_one_and_no_other(
    stack: BiremeStack, tenant: Tenant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = stack.cluster.kubectl
    reads = f"reads-{tenant.namespace}"
    lists = ("--verb=list", "--resource=trainingjobs.bireme.dev")
    kubectl("create", "clusterrole", reads, *lists)
    readers = {}
    for name in ("ann", "joe", "root", "eve", "nobody"):
        kubectl("create", "serviceaccount", name, "-n", tenant.namespace)
        file = tmp_path / f"{name}.yaml"
        readers[name] = account_kubeconfig(stack.cluster, tenant.namespace, name, file)
    who = {name: f"--serviceaccount={tenant.namespace}:{name}" for name in readers}
    where = ("-n", tenant.namespace)
    way = ("--role=bireme-outlook", "-n", SYSTEM)
    asking = [who[name] for name in ("ann", "joe", "root", "eve")]
    kubectl("create", "rolebinding", reads, *way, *asking)
    list_here = (f"--clusterrole={reads}", *where, who["ann"], who["joe"])
    kubectl("create", "rolebinding", reads, *list_here)
    kubectl("create", "clusterrolebinding", reads, f"--clusterrole={reads}", who["root"])
    creates = ("--verb=create", "--resource=trainingjobs.bireme.dev")
    kubectl("create", "role", "creates", *creates, *where)
    kubectl("create", "rolebinding", "creates", "--role=creates", *where, who["joe"])
    gangs_here = "--resource=trainingjobs.bireme.dev,podgroups.bireme.dev"
    kubectl("create", "role", "watches", "--verb=get,list,watch", gangs_here, *where)
    kubectl("create", "rolebinding", "watches", "--role=watches", *where, who["ann"])

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        """Status, output and errors of a command of a reader."""
        done = main([*arguments, "--kubeconfig", str(readers[name])])
        printed = capsys.readouterr()
        return done, printed.out, printed.err

    def asked(name: str, *arguments: str) -> tuple[list[str] | None, str]:
        """The gangs that a reader is told of, None where refused, and what is said of that."""
        done, out, said = run(name, "queue", "--outlook", "-o", "json", *arguments)
        if done:
            return None, said
        gangs = [item["gang"] for item in json.loads(out)["items"]]
        return sorted(f"{each['namespace']}/{each['name']}" for each in gangs), said

    with Tenant.staying(stack.cluster, stack.log_tails) as other:
        tenant.create(training_job("runs", task(replicas=16), estimatedDuration="1h"))
        tenant.await_phase("runs", "Running")
        tenant.create(training_job("mine", task(replicas=16)))
        time.sleep(1.1)  # who came first goes first, by whole seconds
        other.create(training_job("theirs", task(replicas=16)))
        mine, theirs = f"{tenant.namespace}/mine", f"{other.namespace}/theirs"
        both = sorted([mine, theirs])
        # On a busy machine an outlook takes seconds, and the next comes after four times as many.
        eventually(lambda: asked("root"), lambda found: found[0] == both, 120.0)
        assert asked("ann")[0] == [mine]
        assert asked("root", "-n", other.namespace)[0] == [theirs]
        gangs, said = asked("ann", "-n", other.namespace)
        assert (gangs, f"in namespace '{other.namespace}'" in said) == (None, True)
        assert asked("eve")[0] == []
        gangs, said = asked("nobody")
        assert (gangs, "may not create tickets" in said) == (None, True), "granted as well"
        assert kubectl("get", "tickets", "-A", "-o=name") == "", "each was deleted after its answer"

        done, out, said = run("ann", "why", "mine", "-n", tenant.namespace, *IF_SHORT)
        assert (done, said) == (0, "")
        found = json.loads(out)
        assert found["gang"]["estimatedSeconds"] == 60.0
        assert (found["begins"], found["ahead"]["named"]) == ("Later", [])
        done, _, said = run("ann", "why", "theirs", "-n", other.namespace, *IF_SHORT)
        assert (done, f"list trainingjobs in namespace '{other.namespace}'" in said) == (1, True)

        target = ("--kubeconfig", str(readers["ann"]), *where)
        with board(*target, log=tmp_path / "ui.log") as address:
            page = pages(address)
            answer = page(f"/what-if/{mine}?estimate=1m&seconds=5")
            assert f"TrainingJob {mine}: 16 worker, queue default, priority 0, runs 1m" in answer
            # Who may not list nodes is told of them in a table.
            assert "You may not list nodes" in page(f"/job/{mine}")
            kept = "16 devices are kept for it"
            eventually(lambda: page(f"/job/{mine}"), lambda text: kept in text, 30.0)
            assert other.namespace not in page("/nodes")

        new = tmp_path / "new.json"
        new.write_text(json.dumps(training_job("new", task(replicas=16))))
        dry_run = ("submit", str(new), "-n", tenant.namespace, "--dry-run", "-o", "json")
        done, _, said = run("ann", *dry_run)
        assert (done, "may not create trainingjobs in namespace" in said) == (1, True)
        done, out, said = run("joe", *dry_run)
        assert done == 0, said
        (found,) = json.loads(out)["items"]
        assert (found["begins"], found["position"]) == ("Later", 3)
        assert found["ahead"] == {"count": 2, "named": [mine]}, "behind one that is not named"


def test_operator_answers_with_neither_a_token_nor_somebody_elses_ticket(
    stack: BiremeStack,
) -> None:
    token = stack.cluster.kubectl("create", "token", "default", "-n", SYSTEM).strip()
    port = stack.operator().port
    for header in (
        {"Authorization": f"Bearer {token}"},
        {"Bireme-Token": token},
        {"Bireme-Ticket": "none.secret"},
    ):
        request = Request(f"http://127.0.0.1:{port}{PATH}", headers=header)
        with pytest.raises(HTTPError) as refused:
            build_opener().open(request, timeout=30)
        refused.value.close()
        assert refused.value.code == 401, header


def test_the_chart_has_the_way_to_it_and_grants_reviews_where_it_is_served_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    assert "bireme-outlook" not in helm.template()
    text = helm.template(SWITCHED_ON)
    assert "resources: [subjectaccessreviews]" in text
    assert "tokenreviews" not in text
    policies = [
        each
        for each in yaml.safe_load_all(text)
        if (each["kind"], each["metadata"]["name"])
        == ("ValidatingAdmissionPolicy", "bireme-tickets")
    ]
    assert len(policies) == 1
    assert "outlook: true" in text
