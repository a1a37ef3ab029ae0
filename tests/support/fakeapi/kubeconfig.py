"""A kubeconfig for a server that speaks plain http on a loopback port."""

from tests.support.fakeapi.store import Object


def kubeconfig_of(server: str, token: str | None = None) -> Object:
    """A kubeconfig with one plain-http cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": server}}],
        "users": [{"name": "fake", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
    }
