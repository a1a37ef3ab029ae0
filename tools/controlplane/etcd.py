"""What tests do to etcd itself, over its JSON gateway on loopback."""

import json
import urllib.request
from typing import Any


def compact(client_port: int) -> int:
    """Drops all history of the etcd on ``client_port`` up to now; returns the revision.

    Raises:
        OSError: etcd does not answer, or refuses.
    """
    revision = int(_call(client_port, "range", {"key": "AA=="})["header"]["revision"])
    _call(client_port, "compaction", {"revision": str(revision), "physical": True})
    return revision


def _call(client_port: int, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    url = f"http://127.0.0.1:{client_port}/v3/kv/{verb}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # loopback only
        decoded: dict[str, Any] = json.loads(answer.read())
    return decoded
