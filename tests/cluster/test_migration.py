"""Volcano's own example files, converted, on a real API server: every object is accepted.

The files are read from Volcano's Go module, which the module proxy serves.
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
from testbed.controlplane.binaries import cache_root, find_go, go_environment
from testbed.controlplane.cluster import Cluster

pytestmark = pytest.mark.cluster

VOLCANO: Final = "volcano.sh/volcano@v1.15.0"
REFUSED: Final = {
    "duplicatedTaskName-webhook-deny.yaml": "two tasks are called",
    "minAvailable-webhook-deny.yaml": "spec.minAvailable is",
}
"""What Volcano's webhook refuses as well."""
KINDS: Final = ("Job", "PodGroup", "Queue")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``example`` of Volcano's module."""
    go = find_go(cache_root())
    answer = subprocess.run(
        [str(go), "mod", "download", "-json", VOLCANO],
        cwd=tmp_path_factory.mktemp("module"),
        env=go_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"]) / "example"


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


def test_every_example_of_volcano_converts_or_is_refused_like_there(
    cluster: Cluster, examples: Path
) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(crd.DIRECTORY))
    paths = volcanos(examples)
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
    applied = cluster.kubectl(
        "apply", "--dry-run=server", "--server-side", "-f", "-", input=yaml.safe_dump_all(made)
    )
    assert applied.count("serverside-applied (server dry run)") == len(made)
