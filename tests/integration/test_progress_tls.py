"""The progress endpoint over TLS, with a certificate that is replaced while it serves."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from bireme import connections
from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.kube.pod_builder import path
from bireme.testing import ManualClock
from bireme_operator.app import Operator
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.progress import Certificate, ProgressEndpoint
from bireme_operator.settings import OperatorSettings, ProgressListener
from testbed.controlplane.process import free_ports
from testbed.fakeapi import FakeApi
from testbed.operator_term.term import PATIENCE_SECONDS

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not here, to make a certificate with"
)


def certify(folder: Path) -> Path:
    """Write a new certificate for localhost and its key into ``folder``, and return it."""
    cert, key = str(folder / "tls.crt"), str(folder / "tls.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    return folder


async def asked(port: int, authority: str) -> int:
    """The status of the answer, by a client that trusts ``authority`` alone."""
    trust = ssl.create_default_context(cafile=authority)
    url = f"https://localhost:{port}{path(('default', 'job'))}"
    async with aiohttp.ClientSession() as http, http.post(url, json={}, ssl=trust) as answer:
        return answer.status


@needs_openssl
async def test_certificate_that_was_replaced_is_served_without_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    endpoint = ProgressEndpoint(lambda: None, OperatorMetrics())
    port = await endpoint.start("127.0.0.1", 0, Certificate(certify(tmp_path), clock))
    try:
        old = shutil.copy(tmp_path / "tls.crt", tmp_path / "old.crt")
        assert await asked(port, str(old)) == 503
        certify(tmp_path)
        clock.advance(61.0)
        assert await asked(port, str(old)) == 503, "and then it looks at the files"
        assert await asked(port, str(tmp_path / "tls.crt")) == 503
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asked(port, str(old))
    finally:
        await endpoint.stop()


@needs_openssl
async def test_who_never_shakes_hands_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HANDSHAKE_SECONDS", 0.05)
    endpoint = ProgressEndpoint(lambda: None, OperatorMetrics())
    port = await endpoint.start("127.0.0.1", 0, Certificate(certify(tmp_path), ManualClock()))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await endpoint.stop()


@needs_openssl
async def test_the_operator_serves_progress_at_its_address_with_the_certificate_of_its_folder(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    folder, (port,) = certify(tmp_path), free_ports(1)
    settings = OperatorSettings(
        metrics_address="",
        progress_url="https://here",
        progress_address=f"https://127.0.0.1:{port}{folder}",
    )
    operator = Operator(settings, SchedulingSettings())
    running = asyncio.create_task(operator.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    assert await asked(port, str(folder / "tls.crt")) in (401, 503)
                    break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
    finally:
        operator.stop.set()
        await running


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8082",
        "http://127.0.0.1",
        "http://127.0.0.1:8082/etc/tls",
        "https://0.0.0.0:8082",
        "https://0.0.0.0:8082/",
        "https://::1:8082/etc/tls",
        "https://0.0.0.0:65536/etc/tls",
    ],
)
def test_an_address_without_port_or_with_half_of_tls_is_refused(address: str) -> None:
    with pytest.raises(
        SettingError, match=r"progress_address is '.*'; it must be http://HOST:PORT"
    ):
        OperatorSettings(progress_address=address)


def test_an_address_names_host_port_and_the_folder_of_the_certificate() -> None:
    plain = ProgressListener.parse("http://127.0.0.1:8082")
    assert plain == ProgressListener("127.0.0.1", 8082, None)
    secure = ProgressListener.parse("https://[::]:8082/etc/bireme-progress")
    assert secure == ProgressListener("::", 8082, Path("/etc/bireme-progress"))


@needs_openssl
def test_a_certificate_that_stays_bad_is_logged_once_and_the_old_one_serves(tmp_path: Path) -> None:
    clock = ManualClock()
    certificate = Certificate(certify(tmp_path), clock)
    key = tmp_path / "tls.key"
    good = key.read_bytes()

    def logged() -> list[str]:
        """Log lines of the next look."""
        clock.advance(61.0)
        with capture_logs() as lines:
            certificate.reload()
        return [f"{line['log_level']} {line['error']}" for line in lines]

    assert logged() == []
    key.write_bytes(b"no key")
    (first,) = logged()
    assert first.startswith("warning SSLError: ")
    assert logged() == [], "logged once"
    key.unlink()
    (second,) = logged()
    assert "FileNotFoundError" in second
    assert str(key) in second
    assert logged() == []
    key.write_bytes(good)
    assert logged() == []
    key.unlink()
    assert len(logged()) == 1, "gone anew"
