"""Gang schedulers of other projects: coscheduling, Volcano and Kueue."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.peers.sides import (
    BURST,
    QPS,
    Gang,
    Side,
    Size,
    condition,
    group_of,
    pods_of,
    requests_of,
)
from benchmarks.timings.arena import Status
from benchmarks.timings.workloads import NAMESPACE
from bireme.core.gpus import GPU
from testbed.controlplane.binaries import COSCHEDULING, KUEUE, build, module_version, output
from testbed.controlplane.errors import ControlPlaneError
from testbed.controlplane.process import Process, free_ports
from testbed.controlplane.scheduling import scheduler_command
from testbed.scenario.manifests import Manifest

LIMITS: Final = (f"--kube-api-qps={QPS}", f"--kube-api-burst={BURST}")


class Coscheduling(Side):
    """The plugin of scheduler-plugins, in a second kube-scheduler, with its controller."""

    name = "coscheduling"
    groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
    settings = (
        "as a second scheduler with its controller, as its chart installs both; "
        "permitWaitingTimeSeconds 10 as its manifests have it; a PodGroup with minMember per gang, "
        f"as in its guide; client limits {QPS}/{BURST} (its controller has such flags, but "
        "does not use them)"
    )

    @property
    def version(self) -> str:
        return module_version("coscheduling", "sigs.k8s.io/scheduler-plugins")

    def install(self, nodes: Sequence[Manifest]) -> None:
        binaries = build(COSCHEDULING)
        crd = binaries / "manifests" / "scheduling.x-k8s.io_podgroups.yaml"
        quotas = binaries / "manifests" / "scheduling.x-k8s.io_elasticquotas.yaml"
        self.cluster.install(crd, quotas)
        config = self.workdir / "coscheduling.yaml"
        config.write_text(yaml.safe_dump(_scheduler_config(self.cluster.kubeconfig)))
        scheduler_port, controller_port = free_ports(2)
        self.run(
            Process(
                "scheduler with coscheduling",
                scheduler_command(binaries / "coscheduling", config, scheduler_port),
                log_path=self.workdir / "coscheduling.log",
                ready_url=f"https://127.0.0.1:{scheduler_port}/readyz",
            ),
            Process(
                "coscheduling's controller",
                [
                    str(binaries / "coscheduling-controller"),
                    "--metricsAddr=0",
                    f"--probeAddr=127.0.0.1:{controller_port}",
                    f"--qps={QPS}",
                    f"--burst={BURST}",
                ],
                log_path=self.workdir / "coscheduling-controller.log",
                ready_url=f"http://127.0.0.1:{controller_port}/readyz",
                env={"KUBECONFIG": str(self.cluster.kubeconfig)},
            ),
        )

    def gang(self, name: str, size: Size) -> Gang:
        # Without ``minResources``, as in its guide: it would add up all nodes for every gang.
        spec = {"minMember": size[0]}
        group = group_of("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, spec)
        labels = {"scheduling.x-k8s.io/pod-group": name}
        pods = pods_of(name, size, labels=labels, schedulerName="scheduler-plugins-scheduler")
        return Gang(name, (self.groups, group), pods)


def _scheduler_config(kubeconfig: Path) -> dict[str, Any]:
    own = [{"name": "Coscheduling"}]
    plugins = {
        "multiPoint": {"enabled": own},
        "queueSort": {"enabled": own, "disabled": [{"name": "*"}]},
    }
    arguments = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}]
    profile = {
        "schedulerName": "scheduler-plugins-scheduler",
        "plugins": plugins,
        "pluginConfig": arguments,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": BURST},
        "profiles": [profile],
    }


# --- Volcano ------------------------------------------------------------------------------------
# Its API is a module of its own, ``volcano.sh/apis``, which not every module proxy serves: so it is
# not built here, but taken as it is.

VOLCANO_VARIABLE: Final = "BIREME_VOLCANO"
VOLCANO_FILES: Final = ("vc-scheduler", "vc-controller-manager", "crd", "scheduler.conf")


def volcano_folder() -> Path:
    """Return the folder of Volcano's programs, its CRDs and its chart's configuration.

    Raises:
        ControlPlaneError: the variable names none, or something is missing in it.
    """
    given = os.environ.get(VOLCANO_VARIABLE, "")
    folder = Path(given).expanduser()
    missing = [name for name in VOLCANO_FILES if not (folder / name).exists()]
    if not given or missing:
        listed = ", ".join(missing or VOLCANO_FILES)
        raise ControlPlaneError(
            f"Volcano is missing: {VOLCANO_VARIABLE} must name a folder with {listed}: its two "
            "programs, config/crd/volcano/bases, and volcano-scheduler.conf of its chart"
        )
    return folder


class Volcano(Side):
    """Its scheduler and its controllers."""

    name = "Volcano"
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
    settings = (
        "scheduler and controllers, without its webhooks, as its tuning guide advises; the "
        "scheduler.conf of its chart; --schedule-period=100ms instead of 1 s; a PodGroup with "
        f"minMember and minResources per gang; client limits {QPS}/{BURST}"
    )

    @property
    def version(self) -> str:
        command = [str(volcano_folder() / "vc-scheduler"), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        versions = [line for line in said.stdout.splitlines() if line.startswith("Version:")]
        return versions[0].removeprefix("Version:").strip()

    def install(self, nodes: Sequence[Manifest]) -> None:
        folder = volcano_folder()
        self.cluster.install(folder / "crd")
        self.cluster.api.post("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
        self.run(
            self._program("vc-controller-manager"),
            self._program(
                "vc-scheduler",
                f"--scheduler-conf={folder / 'scheduler.conf'}",
                "--schedule-period=100ms",
                "--cache-dumper=false",
            ),
        )

    def _program(self, name: str, *more: str) -> Process:
        (port,) = free_ports(1)
        command = [
            str(volcano_folder() / name),
            f"--kubeconfig={self.cluster.kubeconfig}",
            "--leader-elect=false",
            "--enable-healthz=true",
            f"--healthz-address=127.0.0.1:{port}",
            *LIMITS,
            *more,
        ]
        log, url = self.workdir / f"{name}.log", f"http://127.0.0.1:{port}/healthz"
        return Process(name, command, log_path=log, ready_url=url)

    def gang(self, name: str, size: Size) -> Gang:
        spec = {"minMember": size[0], "queue": "default", "minResources": requests_of(size)}
        group = group_of("scheduling.volcano.sh/v1beta1", "PodGroup", name, spec)
        annotations = {"scheduling.k8s.io/group-name": name}
        pods = pods_of(name, size, annotations=annotations, schedulerName="volcano")
        return Gang(name, (self.groups, group), pods)

    def word(self, status: Status) -> str:
        return condition(status, "Unschedulable", "True")


# --- Kueue --------------------------------------------------------------------------------------

_QUEUE: Final = "all"
_CONVERTED: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""The kinds whose conversion webhook its kustomization puts in, and Kueue certifies."""
_KUEUE_NAMESPACE: Final = "kueue-system"
_KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"


class Kueue(Side):
    """Groups of plain pods, with the cluster's own kube-scheduler behind it."""

    name = "Kueue"
    groups = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
    components = ("kube-scheduler",)
    settings = (
        "groups of plain pods (pod-group-total-count); the configuration of its release, with "
        "waitForPodsReady (its all-or-nothing; timeout 5 min, nothing blocked meanwhile); one "
        "ClusterQueue with the cluster's capacity; its webhooks; the cluster's kube-scheduler "
        f"behind it; client limits {QPS}/{BURST}"
    )

    @property
    def version(self) -> str:
        return module_version("kueue", "sigs.k8s.io/kueue")

    def install(self, nodes: Sequence[Manifest]) -> None:
        binaries = build(KUEUE)
        manifests = binaries / "manifests"
        webhook_port, health_port = free_ports(2)
        url = f"https://127.0.0.1:{webhook_port}"
        crds = self.workdir / "kueue-crds.yaml"
        crds.write_text(yaml.safe_dump_all(_crds(manifests, url)))
        self.cluster.install(crds)
        self.cluster.api.post("/api/v1/namespaces", {"metadata": {"name": _KUEUE_NAMESPACE}})
        certificates = self._certificates()
        hooks = yaml.safe_load_all((manifests / "manifests.yaml").read_text())
        self._apply(*(_at_address(each, url) for each in hooks))
        config = yaml.safe_load((manifests / "controller_manager_config.yaml").read_text())
        config |= {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": "127.0.0.1",
                "port": webhook_port,
                "certDir": str(certificates),
            },
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": QPS, "burst": BURST},
            "waitForPodsReady": {"timeout": "5m", "blockAdmission": False},
        }
        path = self.workdir / "kueue.yaml"
        path.write_text(yaml.safe_dump(config))
        self.run(
            Process(
                "kueue",
                [
                    str(binaries / "kueue"),
                    f"--config={path}",
                    # Its API for pending workloads would listen on every address.
                    "--feature-gates=VisibilityOnDemand=false",
                ],
                log_path=self.workdir / "kueue.log",
                ready_url=f"http://127.0.0.1:{health_port}/readyz",
                env={"KUBECONFIG": str(self.cluster.kubeconfig)},
            )
        )
        self._apply(*_queues(nodes))

    def _certificates(self) -> Path:
        """Make the certificates that Kueue would make itself, also for 127.0.0.1.

        Kueue keeps them in a Secret, makes them known to the API server, and serves with those in a
        folder into which a kubelet would mount that.
        """
        folder = self.workdir / "kueue-certificates"
        folder.mkdir(parents=True, exist_ok=True)
        service = f"DNS:kueue-webhook-service.{_KUEUE_NAMESPACE}.svc,IP:127.0.0.1"
        _certify(folder, "ca", "DNS:kueue-ca", "basicConstraints=critical,CA:TRUE")
        _certify(folder, "tls", service, "extendedKeyUsage=serverAuth", signed=True)
        files = {path.name: path.read_text() for path in folder.iterdir()}
        secret = {"metadata": {"name": "kueue-webhook-server-cert"}, "stringData": files}
        self.cluster.api.post(f"/api/v1/namespaces/{_KUEUE_NAMESPACE}/secrets", secret)
        return folder

    def _apply(self, *objects: Manifest) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))

    def gang(self, name: str, size: Size) -> Gang:
        labels = {"kueue.x-k8s.io/queue-name": _QUEUE, "kueue.x-k8s.io/pod-group-name": name}
        annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size[0])}
        return Gang(name, None, pods_of(name, size, labels=labels, annotations=annotations))

    def word(self, status: Status) -> str:
        return condition(status, "QuotaReserved", "False")


def _certify(folder: Path, name: str, names: str, use: str, *, signed: bool = False) -> None:
    """Write ``name.crt`` and its key; signed by ``ca`` of that folder, or by itself."""
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "365"]
    command += ["-subj", f"/CN=kueue-{name}", "-addext", f"subjectAltName={names}"]
    command += ["-addext", use, "-keyout", f"{name}.key", "-out", f"{name}.crt"]
    command += ["-CA", "ca.crt", "-CAkey", "ca.key"] if signed else []
    output(command, folder=folder, timeout_seconds=60, remedy="it must be version 3 or newer")
    # Kueue reads keys in their older form only.
    older = ["openssl", "rsa", "-traditional", "-in", f"{name}.key", "-out", f"{name}.key"]
    output(older, folder=folder, timeout_seconds=60)


def _crds(manifests: Path, url: str) -> list[Manifest]:
    """Return the CRDs of the release, converted between their versions at ``url``."""
    found = [yaml.safe_load(p.read_text()) for p in sorted(manifests.glob("kueue.x-k8s.io_*.yaml"))]
    by_name = {each["metadata"]["name"]: each for each in found}
    for kind in _CONVERTED:
        patch = yaml.safe_load((manifests / f"webhook_in_{kind}.yaml").read_text())
        conversion = patch["spec"]["conversion"]
        conversion["webhook"]["clientConfig"] = {"url": f"{url}/convert"}
        by_name[patch["metadata"]["name"]]["spec"]["conversion"] = conversion
    return found


def _at_address(configuration: Manifest, url: str) -> Manifest:
    """Return a webhook configuration of the release, at ``url`` and out of system namespaces."""
    spared = ["kube-system", _KUEUE_NAMESPACE]
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared}
    hooks = [
        {
            **hook,
            "clientConfig": {"url": url + hook["clientConfig"]["service"]["path"]},
            "namespaceSelector": {"matchExpressions": [expression]},
        }
        for hook in configuration["webhooks"]
    ]
    # Its installers put the name of the release in front, and Kueue looks for that.
    name = f"kueue-{configuration['metadata']['name']}"
    return {**configuration, "metadata": {"name": name}, "webhooks": hooks}


def _queues(nodes: Sequence[Manifest]) -> list[Manifest]:
    """Return a flavour, a ClusterQueue with all that these equal nodes have, and its LocalQueue."""
    machine = nodes[0]["status"]["allocatable"]
    quotas = [
        {"name": "cpu", "nominalQuota": str(int(machine["cpu"]) * len(nodes))},
        {"name": "memory", "nominalQuota": f"{len(nodes)}Ti"},
        {"name": GPU, "nominalQuota": str(int(machine[GPU]) * len(nodes))},
    ]
    covered = [quota["name"] for quota in quotas]
    flavors = [{"name": "machine", "resources": quotas}]
    return [
        {
            "apiVersion": _KUEUE_API,
            "kind": "ResourceFlavor",
            "metadata": {"name": "machine"},
            "spec": {},
        },
        {
            "apiVersion": _KUEUE_API,
            "kind": "ClusterQueue",
            "metadata": {"name": _QUEUE},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
            },
        },
        group_of(_KUEUE_API, "LocalQueue", _QUEUE, {"clusterQueue": _QUEUE}),
    ]
