"""``docs/reference/gpu-models.md``: the models of GPUs that Bireme knows, from its table."""

from typing import Final

from bireme.core.gpus import GPU_MODEL_LABEL, GPU_MODELS
from tools.docs.reference.tables import table

_HEAD: Final = f"""# GPU models

Written by `make reference` from `bireme/core/gpus.py`. Policies that weigh unlike GPUs, such as the
placer `das`, take their speed and rent from this table, by the node label `{GPU_MODEL_LABEL}`.
Speeds are training throughput relative to one V100. They are rough: the true ones depend on the
model that is trained. Rents are assumptions, and the module says on what they rest.

Add a model, or change one, by the [setting](settings.md) `gpuModels`:

```yaml
scheduling:
  gpuModels: ["R100=9.5:20", "H100=3.0:6"]   # NAME=SPEED:DOLLARS
```

A label that names none of these counts as the fastest if it begins with `NVIDIA` and names no
old product line, and else as a V100. `bireme doctor` and the metric `bireme_unknown_gpu_models`
name it.

"""


def page() -> str:
    rows = [(m.name, f"{m.speed:g}", f"{m.dollars_per_hour:g}", m.source) for m in GPU_MODELS]
    columns = ("model", "speed", "dollars an hour", "source of the speed")
    return _HEAD + table(columns, rows)
