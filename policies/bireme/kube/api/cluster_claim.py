"""ClusterClaim: states which release of Bireme leads in the cluster.

The one object, ``bireme``, is cluster scoped and written by the leader alone, so that no right in a
namespace reaches it. Releases in other namespaces read it and wait.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from bireme.kube.api.base import ApiModel, DnsLabel, Resource, Rule, Timestamp, validations
from bireme.kube.leadership import CLAIM_NAME, MAX_LEASE_SECONDS, MAX_TRANSITIONS


class ClusterClaimSpec(ApiModel):
    """The release that leads, and until when others wait for it."""

    namespace: DnsLabel
    """The namespace of the release whose operator leads."""
    holder: Annotated[str, Field(max_length=317)] = ""
    """The process that leads; empty once it has handed the cluster over."""
    duration_seconds: Annotated[int, Field(ge=1, le=MAX_LEASE_SECONDS)]
    """Seconds that others wait for a holder that no longer renews."""
    renew_time: Timestamp
    """The last renewal by the holder, for people; programs compare versions of the object."""
    transitions: Annotated[int, Field(ge=0, le=MAX_TRANSITIONS)]
    """Number of changes of the leader. Every plan carries it."""


class ClusterClaim(Resource):
    """The claim of one release to the whole cluster; written by its operator alone."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                f"self.metadata.name == '{CLAIM_NAME}'",
                f"metadata.name {{self.metadata.name}} is not {CLAIM_NAME}: a cluster has one"
                " ClusterClaim, which the operator writes",
            )
        )
    )

    kind: Literal["ClusterClaim"] = "ClusterClaim"
    spec: ClusterClaimSpec
