"""Sizes of the images: by layer, unpacked and packed, and by installed package."""

import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Final

from tools.images.archives import Archive, Images

LARGEST: Final = 10
_BIREME: Final = ("base", "packages", "Bireme, bytecode of all that is imported")
CONTENTS: Final = {
    "bireme": _BIREME,
    "bireme-forecast": (*_BIREME, "packages of the forecast", "their bytecode"),
    "bireme-lab": (*_BIREME, "the lab, with its bytecode"),
}
"""Layers of the Dockerfile's images, on a base of one layer."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of an image; sizes in bytes, packed by gzip."""

    digest: str
    unpacked: int
    packages: Counter[str]
    packed: int


def tables(images: Images) -> str:
    """Return two Markdown tables: layers, then the largest packages; MB are a million bytes."""
    lines = ["| image | layer | MB unpacked | MB packed |", "|---|---|---:|---:|"]
    packages: Counter[str] = Counter()
    counted: set[str] = set()
    for image in images.all:
        name = image.name.rpartition("/")[2].partition(":")[0]
        found = list(layers(image))
        contents = CONTENTS.get(name, (name,))
        for layer, content in zip(found, contents, strict=False):
            # A node has a layer once, however many images share it.
            if layer.digest not in counted:
                counted.add(layer.digest)
                packages += layer.packages
                lines.append(_row(name, content, layer.unpacked, layer.packed))
        unpacked, packed = (sum(getattr(x, size) for x in found) for size in ("unpacked", "packed"))
        lines.append(_row(f"**{name}**", "all", unpacked, packed))
    lines += ["", "| package | MB unpacked |", "|---|---:|"]
    lines += [f"| {name} | {size / 1e6:.1f} |" for name, size in packages.most_common(LARGEST)]
    return "\n".join(lines)


def _row(image: str, content: str, unpacked: int, packed: int) -> str:
    return f"| {image} | {content} | {unpacked / 1e6:.1f} | {packed / 1e6:.1f} |"


def layers(image: Archive) -> Iterator[Layer]:
    with tarfile.open(image.path) as archive:

        def read(blob: str) -> IO[bytes]:
            file = archive.extractfile(blob)
            assert file is not None, f"{blob} of {image.path} is no file"  # noqa: S101
            return file

        def content(digest: str) -> Any:
            return json.load(read(f"blobs/{digest.replace(':', '/')}"))

        manifest = content(json.load(read("index.json"))["manifests"][0]["digest"])
        for layer in manifest["layers"]:
            blob = read(f"blobs/{layer['digest'].replace(':', '/')}")
            yield Layer(layer["digest"], *_contents(blob), packed=layer["size"])


def _contents(blob: IO[bytes]) -> tuple[int, Counter[str]]:
    """Return bytes of all files, and of those below site-packages by the name there."""
    total = 0
    packages: Counter[str] = Counter()
    with tarfile.open(fileobj=blob, mode="r:gz") as layer:
        for member in layer:
            total += member.size
            match PurePosixPath(member.name).parts:
                case ("opt", "bireme", "lib", _, "site-packages", package, *_):
                    packages[package] += member.size
    return total, packages
