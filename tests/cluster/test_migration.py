"""Volcano's and Kueue's own example files, converted, on a real API server: all are accepted.

The files are read from their Go modules, which the module proxy serves.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bireme.cli.conversion import ConversionError
from bireme.cli.convert import convert
from bireme.cli.manifest_files import read
from bireme.kube import crd
from testbed.controlplane.binaries import cache_root, find_go, go_environment, module_version
from testbed.controlplane.cluster import Cluster

pytestmark = pytest.mark.cluster

VOLCANO: Final = "volcano.sh/volcano@v1.15.0"
KUEUE: Final = f"sigs.k8s.io/kueue@{module_version('kueue', 'sigs.k8s.io/kueue')}"
REFUSED: Final = {
    "duplicatedTaskName-webhook-deny.yaml": "two tasks are called",
    "minAvailable-webhook-deny.yaml": "spec.minAvailable is",
}
"""What Volcano's webhook refuses as well."""
KINDS: Final = ("Job", "PodGroup", "Queue")


@pytest.fixture(scope="module")
def crds(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(crd.DIRECTORY))


def source(module: str, folder: Path) -> Path:
    """Return the folder of a Go module's sources."""
    go = find_go(cache_root())
    answer = subprocess.run(
        [str(go), "mod", "download", "-json", module],
        cwd=folder,
        env=go_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])


def volcanos(examples: Path) -> list[Path]:
    """Files with at least one object that converts."""
    found = []
    for path in sorted(examples.rglob("*.yaml")):
        documents = read(str(path))
        if any(is_volcanos(document) for document in documents):
            found.append(path)
    return found


def is_volcanos(document: dict[str, Any]) -> bool:
    return "volcano.sh/" in document["apiVersion"] and document["kind"] in KINDS


@pytest.mark.usefixtures("crds")
def test_every_example_of_volcano_converts_or_is_refused_like_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    paths = volcanos(source(VOLCANO, tmp_path) / "example")
    assert len(paths) >= 20
    made: list[dict[str, Any]] = []
    for path in paths:
        documents = read(str(path))
        if path.name in REFUSED:
            with pytest.raises(ConversionError, match=REFUSED[path.name]):
                convert(documents, {})
        else:
            made += convert(documents, {})[0]
    assert set(REFUSED) <= {path.name for path in paths}
    assert {"TrainingJob", "Queue"} <= {document["kind"] for document in made}
    assert accepted(cluster, "apply", made) == len(made)


@pytest.mark.usefixtures("crds")
def test_the_examples_of_kueue_convert(cluster: Cluster, tmp_path: Path) -> None:
    paths = sorted((source(KUEUE, tmp_path) / "cmd/kueueviz/examples").glob("*.yaml"))
    documents = [document for path in paths for document in read(str(path))]
    for number, document in enumerate(documents):
        if prefix := document["metadata"].pop("generateName", None):
            document["metadata"]["name"] = f"{prefix}{number}"
    made = convert(documents, {})[0]
    queues = {document["metadata"]["name"] for document in made if document["kind"] == "Queue"}
    assert {
        document["spec"]["queue"] for document in made if document["kind"] == "PodGroup"
    } < queues
    kinds = {document["kind"] for document in made}
    assert kinds == {"Queue", "PriorityClass", "PodGroup", "Job"}
    assert accepted(cluster, "create", made) == len(made)


def accepted(cluster: Cluster, verb: str, documents: list[dict[str, Any]]) -> int:
    """Return how many objects the API server would store."""
    flags = ["--dry-run=server", *(["--server-side"] if verb == "apply" else [])]
    answer = cluster.kubectl(verb, *flags, "-f", "-", input=yaml.safe_dump_all(documents))
    return answer.count("(server dry run)")
