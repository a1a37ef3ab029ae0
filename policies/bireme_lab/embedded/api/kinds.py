"""The kinds of Kubernetes that the embedded cluster serves, with their columns."""

from typing import Final

from bireme_lab.embedded.api.resources import ResourceKind, TableColumn

_AGE: Final = TableColumn("Age", "date", ".metadata.creationTimestamp")
_STATUS: Final = frozenset({"status"})
_NONE: Final[frozenset[str]] = frozenset()


def _columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[TableColumn, ...]:
    """Return columns whose cells a printer fills; ``wide`` are those of ``-o wide``."""
    shown = [TableColumn(name, "string", "") for name in names]
    return (*shown, *(TableColumn(name, "string", "", 1) for name in wide))


def _kind(
    group_version: str,
    plural: str,
    kind: str,
    *,
    cluster: bool = False,
    short: str = "",
    subresources: frozenset[str] = _NONE,
    selectable: str = "",
    columns: tuple[TableColumn, ...] = (_AGE,),
    reviews: bool = False,
) -> ResourceKind:
    group, _, version = group_version.rpartition("/")
    return ResourceKind(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        is_namespaced=not cluster,
        short_names=tuple(short.split()),
        categories=("all",) if group in ("apps", "batch") or plural in ("pods", "services") else (),
        subresources=subresources,
        selectable=frozenset(selectable.split()),
        columns=columns,
        is_create_only=reviews,
    )


KINDS: Final = (
    _kind("v1", "namespaces", "Namespace", cluster=True, short="ns",
          subresources=frozenset({"status", "finalize"}), selectable="status.phase",
          columns=_columns("Status", "Age")),
    _kind("v1", "nodes", "Node", cluster=True, short="no", subresources=_STATUS,
          selectable="spec.unschedulable",
          columns=_columns("Status", "Roles", "Age", "Version", wide=("Internal-IP",))),
    _kind("v1", "pods", "Pod", short="po",
          subresources=frozenset({"status", "eviction", "binding", "log"}),
          selectable="spec.nodeName spec.schedulerName spec.restartPolicy spec.serviceAccountName "
                     "status.phase status.podIP status.nominatedNodeName spec.hostNetwork",
          columns=_columns("Ready", "Status", "Restarts", "Age",
                           wide=("IP", "Node", "Nominated Node", "Readiness Gates"))),
    _kind("v1", "services", "Service", short="svc", subresources=_STATUS,
          selectable="spec.clusterIP spec.type",
          columns=_columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age")),
    _kind("v1", "configmaps", "ConfigMap", short="cm", columns=_columns("Data", "Age")),
    _kind("v1", "secrets", "Secret", selectable="type", columns=_columns("Type", "Data", "Age")),
    _kind("v1", "serviceaccounts", "ServiceAccount", short="sa",
          subresources=frozenset({"token"})),
    _kind("v1", "events", "Event", short="ev",
          selectable="involvedObject.kind involvedObject.namespace involvedObject.name "
                     "involvedObject.uid involvedObject.apiVersion reason type source "
                     "reportingComponent",
          columns=_columns("Last Seen", "Type", "Reason", "Object", "Message")),
    _kind("v1", "resourcequotas", "ResourceQuota", short="quota", subresources=_STATUS,
          columns=_columns("Request", "Limit", "Age")),
    _kind("v1", "limitranges", "LimitRange", short="limits",
          columns=(TableColumn("Created At", "date", ".metadata.creationTimestamp"),)),
    _kind("v1", "persistentvolumes", "PersistentVolume", cluster=True, short="pv",
          subresources=_STATUS),
    _kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim", short="pvc",
          subresources=_STATUS),
    _kind("apps/v1", "statefulsets", "StatefulSet", short="sts",
          subresources=frozenset({"status", "scale"}),
          columns=_columns("Ready", "Age")),
    _kind("apps/v1", "replicasets", "ReplicaSet", short="rs",
          subresources=frozenset({"status", "scale"}),
          columns=_columns("Desired", "Current", "Ready", "Age")),
    _kind("apps/v1", "deployments", "Deployment", short="deploy",
          subresources=frozenset({"status", "scale"}),
          columns=_columns("Ready", "Up-to-date", "Available", "Age")),
    _kind("batch/v1", "jobs", "Job", subresources=_STATUS, selectable="status.successful",
          columns=_columns("Status", "Completions", "Duration", "Age")),
    _kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", short="pdb",
          subresources=_STATUS,
          columns=_columns("Min Available", "Max Unavailable", "Allowed Disruptions", "Age")),
    _kind("coordination.k8s.io/v1", "leases", "Lease",
          columns=(TableColumn("Holder", "string", ".spec.holderIdentity"), _AGE)),
    _kind("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", cluster=True, short="pc",
          columns=(TableColumn("Value", "string", ".value"),
                   TableColumn("Global-Default", "boolean", ".globalDefault"), _AGE,
                   TableColumn("PreemptionPolicy", "string", ".preemptionPolicy"))),
    _kind("storage.k8s.io/v1", "storageclasses", "StorageClass", cluster=True, short="sc"),
    _kind("storage.k8s.io/v1", "csidrivers", "CSIDriver", cluster=True),
    _kind("storage.k8s.io/v1", "csinodes", "CSINode", cluster=True),
    _kind("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity"),
    _kind("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", cluster=True,
          subresources=_STATUS),
    _kind("resource.k8s.io/v1", "deviceclasses", "DeviceClass", cluster=True),
    _kind("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", subresources=_STATUS),
    _kind("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _kind("resource.k8s.io/v1", "resourceslices", "ResourceSlice", cluster=True,
          selectable="spec.nodeName spec.driver"),
    _kind("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", cluster=True),
    _kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding",
          cluster=True),
    _kind("rbac.authorization.k8s.io/v1", "roles", "Role"),
    _kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
    _kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicies",
          "ValidatingAdmissionPolicy", cluster=True, subresources=_STATUS),
    _kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings",
          "ValidatingAdmissionPolicyBinding", cluster=True),
    _kind("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies",
          "MutatingAdmissionPolicy", cluster=True),
    _kind("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings",
          "MutatingAdmissionPolicyBinding", cluster=True),
    _kind("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations",
          "ValidatingWebhookConfiguration", cluster=True),
    _kind("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition",
          cluster=True, short="crd crds", subresources=_STATUS,
          columns=(TableColumn("Created At", "date", ".metadata.creationTimestamp"),)),
    _kind("authentication.k8s.io/v1", "tokenreviews", "TokenReview", cluster=True, reviews=True),
    _kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", cluster=True,
          reviews=True),
    _kind("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", cluster=True,
          reviews=True),
    _kind("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
          cluster=True, reviews=True),
    _kind("authorization.k8s.io/v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview",
          cluster=True, reviews=True),
)  # fmt: skip
"""In the order in which discovery lists them."""

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
NAMESPACES: Final = "/api/v1/namespaces"
SERVICES: Final = "/api/v1/services"
EVENTS: Final = "/api/v1/events"
JOBS: Final = "/apis/batch/v1/jobs"
STATEFUL_SETS: Final = "/apis/apps/v1/statefulsets"
REPLICA_SETS: Final = "/apis/apps/v1/replicasets"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
QUOTAS: Final = "/api/v1/resourcequotas"
LIMIT_RANGES: Final = "/api/v1/limitranges"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
VALIDATING_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
VALIDATING_BINDINGS: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
)
MUTATING_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
MUTATING_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVICE_ACCOUNTS: Final = "/api/v1/serviceaccounts"
