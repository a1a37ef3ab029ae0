"""The image of the pause container, written from its one program without any tool for images."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(program: Path, name: str, target: Path) -> Path:
    """Write an archive in Docker's format: one layer with ``program``, run as nobody."""
    layer = _tar({program.name: program.read_bytes()})
    machine = platform.machine()
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
    }
    target.write_bytes(_tar(files))
    return target


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            # Times and owners stay zero: the same program makes the same image.
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
