"""The chart, rendered against a cluster that has objects of another release."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane.binaries import HELM, build
from testbed.fakeapi import FakeApi
from testbed.fakeapi.server import kubeconfig_of
from testbed.scenario.helm import CHART

pytestmark = pytest.mark.cluster

GROUP = "apiextensions.k8s.io"
CRDS = f"/apis/{GROUP}/v1/customresourcedefinitions"
VERSION = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [{"name": GROUP, "versions": [VERSION], "preferredVersion": VERSION}],
    },
    f"/apis/{GROUP}/v1": {
        "kind": "APIResourceList",
        "groupVersion": f"{GROUP}/v1",
        "resources": [
            {
                "name": "customresourcedefinitions",
                "kind": "CustomResourceDefinition",
                "namespaced": False,
                "verbs": ["get"],
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("kinds", "is_older"),
    [((), False), (("trainingjobs",), True), (("trainingjobs", "clusterclaims"), False)],
)
async def test_a_release_beside_an_older_one_that_does_not_know_the_claim_is_refused(
    tmp_path: Path, kinds: tuple[str, ...], is_older: bool
) -> None:
    async with FakeApi() as api:
        done = await rendered(api, tmp_path, kinds)
        assert api.requests["GET", CRDS] > 0, "the cluster is asked"
    words = "has the older release old in namespace old-system"
    assert (words in done.stderr) == is_older, done.stderr


async def rendered(
    api: FakeApi, folder: Path, kinds: tuple[str, ...]
) -> "subprocess.CompletedProcess[str]":
    """Return how rendering ends where another release owns the CRDs of ``kinds``."""
    api.documents |= DOCUMENTS
    owner = {"release-name": "old", "release-namespace": "old-system"}
    notes = {f"meta.helm.sh/{key}": value for key, value in owner.items()}
    for kind in kinds:
        crd = {"apiVersion": f"{GROUP}/v1", "kind": "CustomResourceDefinition"}
        api.put(f"{CRDS}/{kind}.bireme.dev", {**crd, "metadata": {"annotations": notes}})
    path = folder / "config.json"
    path.write_text(json.dumps(kubeconfig_of(api.url, "")))
    command = [str(build(HELM) / "helm"), "template", "bireme", str(CHART)]
    flags = ["--namespace=bireme-system", "--dry-run=server", f"--kubeconfig={path}"]
    return await asyncio.to_thread(
        subprocess.run,
        [*command, *flags],
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
