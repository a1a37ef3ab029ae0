"""Queries of reads and of writes: selectors, dry runs, checks of fields, options of deletions."""

from typing import Any, Final

READS: Final = (
    *("", "limit=1", "limit=0", "limit=many", "limit=-1", "resourceVersion=0"),
    *("resourceVersion=many", "continue=nonsense", "resourceVersionMatch=Exact"),
    *("timeoutSeconds=many", "pretty=true"),
    *("labelSelector=team%3Da", "labelSelector=team!%3Da", "labelSelector=team"),
    *("labelSelector=!team", "labelSelector=team%20in%20(a,b)", "labelSelector=team%20notin%20(a)"),
    *("labelSelector=team%3D%3D", "labelSelector=team%3Da,size%3Dbig", "labelSelector=%3Da"),
    *("labelSelector=team%20in%20a", "labelSelector=team%3E5", "labelSelector=team%20of%20a"),
    *("labelSelector=bad%20key", "labelSelector=a%3Db%20c", "labelSelector=,", "labelSelector=a(b"),
    *("fieldSelector=metadata.name%3Da0", "fieldSelector=metadata.name!%3Da0"),
    *("fieldSelector=metadata.namespace%3Delsewhere", "fieldSelector=spec.color%3Dred"),
    *("fieldSelector=metadata.name", "fieldSelector=status.phase%3DRunning"),
    *("fieldSelector=status.phase!%3DRunning,metadata.name%3Da0", "fieldSelector=spec.nodeName%3D"),
    *("fieldSelector=metadata.name%20in%20(a0)", "fieldSelector=metadata.uid%3D5"),
)
WRITES: Final = (
    *("", "", "", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore"),
    *("dryRun=All", "dryRun=All", "fieldManager=alice", "fieldValidation=Loose", "dryRun=Some"),
    *("fieldManager=" + "a" * 129, "dryRun=All&fieldValidation=Strict"),
)
DELETIONS: Final[tuple[Any, ...]] = (
    None,
    {},
    {"propagationPolicy": "Foreground"},
    {"propagationPolicy": "Background"},
    {"propagationPolicy": "Orphan"},
    {"propagationPolicy": "Sideways"},
    {"gracePeriodSeconds": 0},
    {"gracePeriodSeconds": 1},
    {"gracePeriodSeconds": -1},
    {"gracePeriodSeconds": "soon"},
    {"preconditions": {"uid": "5"}},
    {"preconditions": {"resourceVersion": "1"}},
    {"dryRun": ["All"]},
    {"dryRun": ["Some"]},
    {"orphanDependents": True, "propagationPolicy": "Foreground"},
    {"color": "red"},
    {"kind": "DeleteOptions", "apiVersion": "v1"},
    {"kind": "Pod", "apiVersion": "v1"},
    "nothing",
)
"""Bodies of deletions."""
