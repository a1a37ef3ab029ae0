"""The chart on an embedded cluster, as the package has it."""

from bireme.kube import crd
from bireme_lab.embedded.installation import chart


def test_the_chart_of_the_package_has_the_kinds_of_the_models() -> None:
    """The tier ``cluster`` compares all of it with what Helm renders."""
    definitions = [each for each in chart() if each["kind"] == "CustomResourceDefinition"]
    assert definitions == [crd.definition(kind) for kind in crd.KINDS]
