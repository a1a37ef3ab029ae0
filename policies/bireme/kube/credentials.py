"""Where the API server is and how to prove who we are.

The ``kubernetes`` package reads kubeconfigs and service account files (it knows certificates,
tokens, exec plugins and OIDC); nothing else of it is used at run time. It is imported on first
use, because it costs half a second and 40 MiB. A :class:`Credentials` value never changes: when
the server refuses one (rotated token, new CA), the client loads another from the same source.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
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
        """The value of the Authorization header, or None when a certificate does the work.

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

    def without_identity(self) -> "Credentials":
        """The same server, trusted the same way, by a client without a certificate."""
        if isinstance(self.tls, bool):
            return self
        return replace(self, tls=_tls(self.configuration, with_certificate=False))


class CredentialSource:
    """Loads credentials, again and again if need be, from one place.

    The place is ``kubeconfig``; without it ``$KUBECONFIG``, then the service account that a pod
    is given, then ``~/.kube/config``. Of a kubeconfig, ``context`` is used in place of the current.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = _kubeconfig_path(kubeconfig)
        self._context = context
        self._lock = asyncio.Lock()
        self._loaded: Credentials | None = None

    async def current(self) -> Credentials:
        """The credentials in use, loaded on first call."""
        return self._loaded or await self.after(None)

    async def after(self, refused: Credentials | None) -> Credentials:
        """Credentials newer than the ``refused`` ones; many callers at once cause one load.

        Raises:
            CredentialsError: the source cannot be read or is incomplete.
        """
        async with self._lock:
            if self._loaded is None or self._loaded is refused:
                self._loaded = await self._load()
            return self._loaded

    def namespace(self) -> str:
        """The namespace of the context, or of the pod; ``default`` where neither says."""
        if self._kubeconfig is None:
            return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else "default"
        from kubernetes.aio import config

        listed = config.list_kube_config_contexts(str(self._kubeconfig))  # type: ignore[no-untyped-call]  # untyped upstream
        contexts, current = listed
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
                await _load_kubeconfig(
                    config.load_kube_config, self._kubeconfig, self._context, configuration
                )
            return _from_configuration(configuration)
        except Exception as error:  # the loaders raise half a dozen unrelated types
            raise CredentialsError(
                f"cannot use {place} as credentials: {error or type(error).__name__}; "
                "check the file, or point KUBECONFIG at another"
            ) from error


def _kubeconfig_path(given: Path | None) -> Path | None:
    """The kubeconfig to read, or None for the in-cluster service account."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    return None if _IN_CLUSTER in os.environ else Path.home() / ".kube" / "config"


async def _load_kubeconfig(
    load: "Callable[..., Awaitable[Any]]", path: Path, context: str | None, configuration: Any
) -> None:
    # $KUBECONFIG may be a list of files, which the loader merges; one file we can check ourselves.
    if os.pathsep not in str(path) and not path.is_file():
        raise CredentialsError("no such file")
    await load(
        config_file=str(path),
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )


def _from_configuration(configuration: Any) -> Credentials:
    server = configuration.host.rstrip("/")
    return Credentials(
        server=server,
        tls=_tls(configuration) if server.startswith("https://") else False,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
        configuration=configuration,
    )


def _tls(configuration: Any, *, with_certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if with_certificate and configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
