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
from bireme.kube.pod_builder import path
from bireme.testing import ManualClock
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.progress import Certificate, ProgressEndpoint
from bireme_operator.settings import OperatorSettings

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not here, to make a certificate with"
)


def certify(folder: Path) -> tuple[str, str]:
    """A new certificate for localhost and its key, in the same two files each time."""
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
    return cert, key


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
    port = await endpoint.start("127.0.0.1", 0, Certificate(*certify(tmp_path), clock))
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
    port = await endpoint.start("127.0.0.1", 0, Certificate(*certify(tmp_path), ManualClock()))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await endpoint.stop()


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(SettingError, match="set both for TLS"):
        OperatorSettings(progress_cert_file="tls.crt")


@needs_openssl
def test_a_certificate_that_stays_bad_is_logged_once_and_the_old_one_serves(tmp_path: Path) -> None:
    clock = ManualClock()
    certificate = Certificate(*certify(tmp_path), clock)
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
