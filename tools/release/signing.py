"""Signatures by cosign with a key pair, without Sigstore's public services.

What is signed in a registry is named by digest; a signature and an attested bill of materials lie
beside it in its repository, as tags that cosign reads.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testbed.controlplane.errors import ControlPlaneError
from tools.release.errors import ReleaseError

Run = Callable[..., str]
"""Runs a command to its end and returns what it printed; ControlPlaneError when it fails."""
KINDS: Final = (".sig", ".att")
"""Of what cosign lays beside an image ``sha256:HEX``, as tag ``sha256-HEX`` and this."""
# No line of the public log, neither written nor asked for: that is what a rehearsal cannot have.
_SIGNING: Final = ("--tlog-upload=false", "--yes")
_VERIFYING: Final = ("--insecure-ignore-tlog=true",)
_CYCLONEDX: Final = ("--type=cyclonedx",)
# How cosign says that what it has been shown is not signed by this key.
_REFUSALS: Final = (
    "no signatures found",
    "no matching signatures",
    "no matching attestations",
    "no matching subject digest",
    "invalid signature when validating",
)


@dataclass(frozen=True, slots=True)
class Signer:
    """A key pair that is made anew in ``folder``; ``program`` is cosign, started by ``run``."""

    run: Run
    program: Path
    folder: Path

    def make_keys(self) -> None:
        self.folder.mkdir()
        self._cosign("generate-key-pair", f"--output-key-prefix={self.folder / 'key'}")

    def sign(self, reference: str) -> None:
        self._cosign("sign", *self._key, *_SIGNING, reference)

    def verify(self, reference: str) -> str:
        """Return the digest that is signed; ControlPlaneError unless ``reference`` has it."""
        shown = self._cosign("verify", *self._public, *_VERIFYING, "--output=json", reference)
        digests = {one["critical"]["image"]["docker-manifest-digest"] for one in json.loads(shown)}
        if len(digests) != 1:
            raise ReleaseError(f"signatures of {reference} are of {sorted(digests)}")
        return str(digests.pop())

    def attest(self, reference: str, bill: Path) -> None:
        """Sign that ``bill`` is the bill of materials of an image, and lay it beside that."""
        self._cosign("attest", *self._key, *_SIGNING, *_CYCLONEDX, f"--predicate={bill}", reference)

    def attested(self, reference: str) -> Any:
        """Return the bill of materials of an image, once its signature is verified."""
        shown = self._cosign(
            "verify-attestation", *self._public, *_VERIFYING, *_CYCLONEDX, reference
        )
        return _predicate(shown.splitlines()[0])

    def sign_file(self, file: Path) -> None:
        """Write the signature of a file beside it."""
        self._cosign(
            "sign-blob", *self._key, *_SIGNING, f"--bundle={_beside(file, '.sig')}", str(file)
        )

    def verify_file(self, file: Path) -> None:
        bundle = f"--bundle={_beside(file, '.sig')}"
        self._cosign("verify-blob", *self._public, *_VERIFYING, bundle, str(file))

    def attest_file(self, file: Path, bill: Path) -> None:
        """Sign that ``bill`` is the bill of materials of a file, and write that beside it."""
        bundle = f"--bundle={_beside(file, '.att')}"
        self._cosign(
            *("attest-blob", *self._key, *_SIGNING, *_CYCLONEDX),
            *(f"--predicate={bill}", bundle, str(file)),
        )

    def attested_file(self, file: Path) -> Any:
        """Return the bill of materials of a file, once its signature is verified."""
        bundle = _beside(file, ".att")
        self._cosign(
            *("verify-blob-attestation", *self._public, *_VERIFYING, *_CYCLONEDX),
            *(f"--bundle={bundle}", str(file)),
        )
        return _predicate(base64.b64decode(json.loads(bundle.read_text())["base64Signature"]))

    def _cosign(self, *arguments: str) -> str:
        # Keys without a password, no registry's credentials and no cache of the user's.
        settings = ("COSIGN_PASSWORD=", f"DOCKER_CONFIG={self.folder}", f"HOME={self.folder}")
        return self.run("env", *settings, str(self.program), *arguments)

    @property
    def _key(self) -> tuple[str, ...]:
        return (f"--key={self.folder / 'key.key'}",)

    @property
    def _public(self) -> tuple[str, ...]:
        return (f"--key={self.folder / 'key.pub'}",)


def refused(what: str, check: Callable[[], object]) -> str:
    """Return why cosign refused, in a line.

    Raises:
        ReleaseError: it did not refuse.
        ControlPlaneError: it failed for another reason, which proves nothing.
    """
    try:
        check()
    except ControlPlaneError as error:
        for line in str(error).splitlines():
            if any(reason in line for reason in _REFUSALS):
                return line.strip()
        raise
    raise ReleaseError(f"{what} was accepted: signatures prove nothing here")


def _predicate(envelope: str | bytes) -> Any:
    return json.loads(base64.b64decode(json.loads(envelope)["payload"]))["predicate"]


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)
