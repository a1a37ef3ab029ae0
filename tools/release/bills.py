"""The bill of materials of a wheel."""

from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.component import Component, ComponentType
from packageurl import PackageURL

from tools.images import materials
from tools.release.distributions import Environment


def of_wheel(wheel: Path, digest: str, environment: Environment) -> str:
    """Return the bill of materials of a wheel, as CycloneDX JSON.

    Its parts are what was installed beside it in ``environment``; ``digest`` is its sha256 in hex.
    """
    name, version, *_ = wheel.name.split("-")
    name = name.replace("_", "-")
    component = Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, name, version),
        bom_ref=f"pkg:pypi/{name}@{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    parts = (one for one in materials.components(environment.installed()) if one.name != name)
    return materials.bill(component, parts)
