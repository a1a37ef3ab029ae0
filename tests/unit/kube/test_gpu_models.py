"""GPU models by their label."""

import pytest

from bireme.core.gpus import GPU_MODELS, UNKNOWN_MODEL, gpu_model


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("Tesla-T4", "T4"),
        ("Tesla-P100-PCIE-16GB", "P100"),
        ("Tesla-V100-SXM2-16GB", "V100"),
        ("V100M32", "V100"),
        ("NVIDIA-A100-SXM4-40GB", "A100"),
        ("nvidia-a100-80gb-pcie", "A100"),
    ],
)
def test_the_product_name_tells_the_model(product: str, name: str) -> None:
    assert gpu_model(product).name == name


@pytest.mark.parametrize("product", ["", "NVIDIA-A10", "Quadro-RTX-8000", "MIT4"])
def test_what_is_not_known_counts_as_one_model_of_its_own(product: str) -> None:
    assert gpu_model(product) is UNKNOWN_MODEL


def test_models_are_listed_from_slow_to_fast() -> None:
    speeds = [model.speed for model in GPU_MODELS]
    assert speeds == sorted(speeds)
