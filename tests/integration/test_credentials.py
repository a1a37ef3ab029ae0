"""Sources of credentials, and the reading of rotated ones."""

import asyncio
import json
import os
from pathlib import Path

import certifi
import pytest
from kubernetes.aio.config import incluster_config

from bireme.kube.client import ApiClient, ApiError
from bireme.kube.credentials import CredentialsError, CredentialSource
from tests.support.fakeapi import FakeApi

PODS = "/api/v1/namespaces/team/pods"


async def test_a_refused_token_is_read_again_once(tmp_path: Path) -> None:
    async with FakeApi() as api:
        api.token = "old"  # noqa: S105  # not a secret
        kubeconfig = api.kubeconfig(tmp_path)
        client = await ApiClient.connect(kubeconfig)
        await client.get(PODS)
        api.token = "new"  # noqa: S105  # not a secret
        api.kubeconfig(tmp_path)
        await asyncio.gather(
            *(client.create(PODS, {"metadata": {"name": f"p{n}"}}) for n in range(20))
        )
        api.token = "unknown to the file"  # noqa: S105  # not a secret
        before = api.requests.total()
        with pytest.raises(ApiError) as raised:
            await client.get(PODS)
        assert raised.value.status == 401
        assert api.requests.total() - before == 2
        await client.close()


async def test_a_token_file_named_in_the_kubeconfig_is_read_again(tmp_path: Path) -> None:
    async with FakeApi() as api:
        kubeconfig = api.kubeconfig(tmp_path)
        content = json.loads(kubeconfig.read_text())
        token = tmp_path / "token"
        content["users"][0]["user"] = {"tokenFile": str(token)}
        kubeconfig.write_text(json.dumps(content))
        token.write_text("first\n")
        api.token = "first"  # noqa: S105  # not a secret
        client = await ApiClient.connect(kubeconfig)
        await client.get(PODS)
        token.write_text("second\n")
        api.token = "second"  # noqa: S105  # not a secret
        await client.get(PODS)
        await client.close()


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"cannot use .*nowhere.*no such file.*KUBECONFIG"):
        await ApiClient.connect(tmp_path / "nowhere")


async def test_a_kubeconfig_without_contexts_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(CredentialsError, match=r"cannot use .*broken"):
        await ApiClient.connect(path)


async def test_the_kubeconfig_of_the_environment_is_used_when_none_is_given(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    client = await ApiClient.connect()
    await client.get(PODS)
    await client.close()


async def test_several_kubeconfigs_are_merged_as_kubectl_does(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{missing}{os.pathsep}{api.kubeconfig(tmp_path)}")
    client = await ApiClient.connect()
    await client.get(PODS)
    await client.close()


async def test_the_service_account_of_the_pod_is_read_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    with pytest.raises(CredentialsError, match=r"the pod's service account.*token file"):
        await ApiClient.connect()
    token.write_text("first\n")
    source = CredentialSource()
    first = await source.current()
    assert first.server == "https://[fd00::1]:6443"
    assert first.authorization() == "bearer first"
    token.write_text("second\n")
    renewed = await asyncio.gather(*(source.after(first) for _ in range(3)))
    assert {id(credentials) for credentials in renewed} == {id(await source.current())}
    assert renewed[0].authorization() == "bearer second"
