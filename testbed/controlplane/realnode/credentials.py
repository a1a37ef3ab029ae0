"""Client certificates of a node's programs, signed by the cluster's own authority."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from testbed.controlplane.api import kubeconfig
from testbed.controlplane.binaries import output

VALID_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Authority:
    """The folder with ``ca.crt`` and ``ca.key`` of a cluster, and the URL of its API server."""

    folder: Path
    server: str

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def admit(self, user: str, group: str, target: Path) -> Path:
        """Write credentials of ``user`` to ``target``, its keys beside it."""
        key, certificate = target.with_suffix(".key"), target.with_suffix(".crt")
        command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256"]
        command += ["-subj", f"/O={group}/CN={user}" if group else f"/CN={user}"]
        command += ["-days", str(VALID_DAYS), "-addext", "extendedKeyUsage=clientAuth"]
        command += ["-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key")]
        command += ["-keyout", str(key), "-out", str(certificate)]
        output(command, timeout_seconds=60, remedy="it must be version 3 or newer")
        cluster = {"server": self.server, "certificate-authority": str(self.certificate)}
        pair = {"client-certificate": str(certificate), "client-key": str(key)}
        target.write_text(yaml.safe_dump(kubeconfig(cluster, pair)))
        return target
