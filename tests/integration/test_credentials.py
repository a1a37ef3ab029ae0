"""Sources of credentials, and the reading of rotated ones."""

import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import certifi
import pytest

from bireme.kube import credentials
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.credentials import CredentialsError, CredentialSource
from testbed.fakeapi import FakeApi

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
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(CredentialsError, match=r"the pod's service account.*token file"):
        await ApiClient.connect()
    token.write_text("first\n")
    source = CredentialSource()
    first = await source.current()
    assert first.server == "https://[fd00::1]:6443"
    assert first.authorization() == "Bearer first"
    token.write_text("second\n")
    renewed = await asyncio.gather(*(source.after(first) for _ in range(3)))
    assert {id(each) for each in renewed} == {id(await source.current())}
    assert renewed[0].authorization() == "Bearer second"


async def test_the_token_of_a_service_account_is_read_again_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    token.write_text("first\n")
    loaded = await CredentialSource().current()
    token.write_text("second\n")
    assert loaded.authorization() == "Bearer first"
    monkeypatch.setattr(credentials, "_TOKEN_SECONDS", 0.0)
    assert loaded.authorization() == "Bearer second"
    token.write_text("")
    with pytest.raises(CredentialsError, match="empty"):
        loaded.authorization()
    token.unlink()
    with pytest.raises(CredentialsError, match="cannot read the token file"):
        loaded.authorization()


# --- kubeconfigs that are read here are read as the package reads them --------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A certificate, which is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("pair")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=test", "-keyout", "key", "-out", "cert"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "cert").read_bytes(), (folder / "key").read_bytes()


def inline(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("is_inline", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        ({}, {}),
        ({"insecure-skip-tls-verify": True}, {"token": "secret"}),
        ({"tls-server-name": "api", "proxy-url": "http://127.0.0.1:1"}, {"tokenFile": "token"}),
    ],
)
async def test_a_plain_kubeconfig_is_read_as_the_package_reads_it(
    tmp_path: Path,
    pair: tuple[bytes, bytes],
    scheme: str,
    is_inline: bool,
    more: tuple[dict[str, Any], dict[str, str]],
) -> None:
    certificate, key = pair
    cluster: dict[str, Any] = {"server": f"{scheme}://127.0.0.1:6443/", **more[0]}
    user: dict[str, Any] = dict(more[1])
    for section, field, content in (
        (cluster, "certificate-authority", certificate),
        (user, "client-certificate", certificate),
        (user, "client-key", key),
    ):
        if is_inline:
            section[f"{field}-data"] = inline(content)
        else:
            (tmp_path / field).write_bytes(content)
            section[field] = field
    (tmp_path / "token").write_text("of the file\n")
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "other",
                "contexts": [
                    {"name": "other", "context": {"cluster": "none", "user": "none"}},
                    {"name": "mine", "context": {"cluster": "c", "user": "u"}},
                ],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    ours = credentials._of_plain_kubeconfig(path, "mine")
    theirs = await credentials._of_any_kubeconfig(str(path), "mine")
    assert ours is not None
    assert facts(ours) == facts(theirs)


def facts(found: credentials.Credentials) -> tuple[object, ...]:
    tls: object = found.tls
    if isinstance(found.tls, ssl.SSLContext):
        tls = (found.tls.verify_mode, found.tls.check_hostname, found.tls.get_ca_certs())
    return found.server, found.authorization(), found.server_hostname, found.proxy, tls


@pytest.mark.parametrize("field", ["exec", "auth-provider", "username", "as", "tokenFile"])
def test_a_kubeconfig_that_takes_more_is_the_packages(tmp_path: Path, field: str) -> None:
    path = tmp_path / "kubeconfig"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "t", field: {}}}],
    }
    path.write_text(json.dumps(content))
    assert credentials._of_plain_kubeconfig(path, None) is None
