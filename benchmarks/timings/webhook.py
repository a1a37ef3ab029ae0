"""A mutating admission webhook for pods that takes its time, as sidecar injectors do."""

import asyncio
import base64
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from testbed.controlplane.cluster import Cluster

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_NAME: Final = "slow.bench.bireme.dev"
_LABEL: Final = "bench.bireme.dev~1seen"
"""As a JSON pointer writes it."""


@asynccontextmanager
async def webhook(
    cluster: Cluster, namespace: str, delay_seconds: float, folder: Path
) -> AsyncIterator[None]:
    """Have every pod of ``namespace`` pass a webhook that answers after ``delay_seconds``.

    It takes dry runs too. It runs in this process, whose processor time is reported with the
    client's.
    """
    cert, key = _certify(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    app = web.Application()
    app.router.add_post("/", _Answers(delay_seconds).answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        body = _configuration(f"https://127.0.0.1:{port}/", namespace, cert.read_bytes())
        await asyncio.to_thread(cluster.api.post, _CONFIGURATIONS, body)
        yield
        await asyncio.to_thread(cluster.api.request, "DELETE", f"{_CONFIGURATIONS}/{_NAME}")
    finally:
        await runner.cleanup()


class _Answers:
    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        patch = [{"op": "add", "path": f"/metadata/labels/{_LABEL}", "value": "yes"}]
        self._patch = base64.b64encode(msgspec.json.encode(patch)).decode()

    async def answer(self, request: web.Request) -> web.Response:
        asked: dict[str, Any] = msgspec.json.decode(await request.read())
        await asyncio.sleep(self._delay_seconds)
        response = {
            "uid": asked["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": self._patch,
        }
        said = {"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response}
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")


def _configuration(url: str, namespace: str, authority: bytes) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    hook = {
        "name": _NAME,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": _NAME},
        "webhooks": [hook],
    }


def _certify(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = folder / "webhook.crt", folder / "webhook.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=webhook", "-keyout", key, "-out", cert),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
