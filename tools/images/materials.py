"""CycloneDX bills of materials: of an image, read from its file system, or of given parts."""

from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tools.images.tool import run

_DEBIAN_FIELDS: Final = "${Package} ${Version} ${Architecture}\\n"


def describe(image: str, root: Path) -> str:
    """Return the bill of materials of the image whose file system is at ``root``, as JSON."""
    name, _, version = image.rpartition(":")
    component = Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=image)
    return bill(component, (*debian_packages(root), *python_packages(root)))


def bill(component: Component, parts: Iterable[Component]) -> str:
    """Return the bill of materials of ``component``, which consists of ``parts``, as JSON."""
    bom = Bom()
    bom.metadata.component = component
    for part in parts:
        bom.components.add(part)
        bom.register_dependency(component, [part])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def debian_packages(root: Path) -> Iterator[Component]:
    asked = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--show", f"-f={_DEBIAN_FIELDS}"]
    for line in run(asked).splitlines():
        name, version, architecture = line.split()
        url = PackageURL("deb", "debian", name, version, {"arch": architecture})
        yield _component(name, version, url)


def python_packages(root: Path) -> Iterator[Component]:
    folders = sorted(root.glob("opt/bireme/lib/python3.*/site-packages"))
    return components(distributions(path=[str(folder) for folder in folders]))


def components(found: Iterable[Distribution]) -> Iterator[Component]:
    """Yield the Python distributions ``found`` as parts of a bill, by name."""
    for each in sorted(found, key=_name):
        url = PackageURL("pypi", None, _name(each), each.version)
        yield _component(_name(each), each.version, url, _terms(each))


def _name(distribution: Distribution) -> str:
    return distribution.metadata["Name"].lower().replace("_", "-")


def _terms(distribution: Distribution) -> str:
    """Return an SPDX expression or, in older metadata, a name."""
    fields = distribution.metadata.json
    stated = str(fields.get("license_expression") or fields.get("license") or "")
    return "" if "\n" in stated else stated  # some have the whole text there


def _component(name: str, version: str, url: PackageURL, terms: str = "") -> Component:
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=url.to_string(),
        licenses=[LicenseFactory().make_from_string(terms)] if terms else None,
    )
