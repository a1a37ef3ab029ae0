"""Pod without a controller: once it is deleted, it is gone for good."""

from typing import Final

from bireme.kube.integrations.integration import Integration, Recreation

POD: Final = Integration(
    api_version="v1",
    kind="Pod",
    plural="pods",
    controls=(),
    release=Recreation(lambda pod: pod),
)
