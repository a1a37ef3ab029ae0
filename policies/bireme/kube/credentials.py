"""Credentials: the address of the API server, its CA, and the client's token or certificate.

The ``kubernetes`` package reads kubeconfigs and service account files (it knows certificates,
tokens, exec plugins and OIDC); nothing else of it is used at run time. It is imported on first
use, because it costs half a second and 40 MiB. A :class:`Credentials` value never changes: when
the server refuses one (rotated token, new CA), the client loads another from the same source.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class CredentialsError(Exception):
    """The kubeconfig or the service account files cannot be used; says which and what to do."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One loaded set: ``server`` has no trailing slash, ``tls`` is False for plain http."""

    server: str
    tls: ssl.SSLContext | bool
    server_hostname: str | None
    proxy: str | None
    configuration: Any
    """The ``kubernetes`` Configuration; its hook re-reads in-cluster tokens once a minute."""

    def authorization(self) -> str | None:
        """Return the Authorization header's value, or None if the client has no token.

        Raises:
            CredentialsError: the token file has vanished or is empty.
        """
        if self.configuration.refresh_api_key_hook is not None:
            try:
                self.configuration.refresh_api_key_hook(self.configuration)
            except Exception as error:  # the loaders raise half a dozen unrelated types
                raise CredentialsError(f"cannot re-read the token: {error}") from error
        token: str | None = self.configuration.api_key.get("BearerToken")
        return token.strip() if token else None


class CredentialSource:
    """Loads credentials, again if the server refuses them, from one place.

    The place is ``kubeconfig``; without it ``$KUBECONFIG``, then the pod's service account, then
    ``~/.kube/config``. ``context`` names another context of the kubeconfig than the current one.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = _kubeconfig_path(kubeconfig)
        self._context = context
        self._lock = asyncio.Lock()
        self._loaded: Credentials | None = None

    async def current(self) -> Credentials:
        """Return the credentials in use, loaded on first call."""
        return self._loaded or await self.after(None)

    async def after(self, refused: Credentials | None) -> Credentials:
        """Return credentials newer than the ``refused`` ones.

        Raises:
            CredentialsError: the source cannot be read or is incomplete.
        """
        async with self._lock:  # many callers at once cause one load
            if self._loaded is None or self._loaded is refused:
                self._loaded = await self._load()
            return self._loaded

    def namespace(self) -> str:
        """Return the namespace of the context, or of the pod, or else ``default``."""
        if self._kubeconfig is None:
            return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else "default"
        from kubernetes.aio import config

        contexts, current = config.list_kube_config_contexts(str(self._kubeconfig))  # type: ignore[no-untyped-call]  # untyped upstream
        chosen = next((c for c in contexts if c["name"] == self._context), current)
        return chosen["context"].get("namespace") or "default"

    async def _load(self) -> Credentials:
        from kubernetes.aio import config
        from kubernetes.aio.client import Configuration

        configuration = Configuration()
        place = self._kubeconfig or "the pod's service account"
        try:
            if self._kubeconfig is None:
                config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # untyped upstream
            else:
                # $KUBECONFIG may be a list of files, which the loader merges and checks.
                if os.pathsep not in str(self._kubeconfig) and not self._kubeconfig.is_file():
                    raise CredentialsError("no such file")
                await config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped upstream
                    config_file=str(self._kubeconfig),
                    context=self._context,
                    client_configuration=configuration,
                    persist_config=False,
                )
            server = configuration.host.rstrip("/")
            return Credentials(
                server=server,
                tls=_tls(configuration) if server.startswith("https://") else False,
                server_hostname=configuration.tls_server_name,
                proxy=configuration.proxy,
                configuration=configuration,
            )
        except Exception as error:  # the loaders raise half a dozen unrelated types
            raise CredentialsError(
                f"cannot use {place} as credentials: {error or type(error).__name__}; "
                "check the file, or point KUBECONFIG at another"
            ) from error


def _kubeconfig_path(given: Path | None) -> Path | None:
    """Return the kubeconfig to read, or None for the in-cluster service account."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    return None if "KUBERNETES_SERVICE_HOST" in os.environ else Path.home() / ".kube" / "config"


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
