"""Jobs of ``batch/v1``: defaults and validation."""

from typing import Final

from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.builtin.plain import filled
from bireme_lab.embedded.builtin.pods import complete_spec, validate_spec

_FIXED: Final = ("completionMode", "selector", "podFailurePolicy", "backoffLimitPerIndex")


def complete(obj: Object, old: Object | None) -> Object:
    """Return a Job with its defaults; a new one gets the labels that its pods are found by."""
    spec = filled(
        obj.get("spec") or {},
        completionMode="NonIndexed",
        suspend=False,
        backoffLimit=6,
        podReplacementPolicy="TerminatingOrFailed",
        manualSelector=False,
    )
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec = filled(spec, completions=1)
    spec = filled(spec, parallelism=1)
    template = spec.get("template") or {}
    template = {**template, "spec": complete_spec(template.get("spec") or {})}
    if old is None and not spec["manualSelector"]:
        meta = obj["metadata"]
        own = _own_labels(meta)
        template_meta = template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), **own}
        template["metadata"] = {**template_meta, "labels": labels}
        selector = {"batch.kubernetes.io/controller-uid": meta["uid"]}
        spec = {**spec, "selector": {"matchLabels": selector}}
    spec = {k: v for k, v in spec.items() if k != "manualSelector" or v}
    return {**obj, "spec": {**spec, "template": template}}


def _own_labels(meta: Object) -> dict[str, str]:
    return {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }


def without_selector(obj: Object) -> Object:
    """Return a Job as it is before the server selects its pods."""
    if obj["spec"].get("manualSelector"):
        return obj
    own, template = _own_labels(obj["metadata"]), obj["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if own.get(k) != v}
    meta = {k: v for k, v in meta.items() if k != "labels"} | ({"labels": labels} if labels else {})
    spec = {k: v for k, v in obj["spec"].items() if k != "selector"}
    return {**obj, "spec": {**spec, "template": {**template, "metadata": meta}}}


def validate(obj: Object, old: Object | None, faults: Faults) -> None:
    spec = obj["spec"]
    template = spec["template"]["spec"]
    validate_spec(template, faults, "spec.template.spec")
    if template.get("restartPolicy") == "Always":
        faults.add(
            "spec.template.spec.restartPolicy",
            "FieldValueRequired",
            'Required value: valid values: "OnFailure", "Never"',
        )
    for name in ("parallelism", "completions", "backoffLimit"):
        if isinstance(spec.get(name), int) and spec[name] < 0:
            faults.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if old is None:
        return
    previous = old["spec"]
    for name in _FIXED:
        if spec.get(name) != previous.get(name):
            faults.invalid(f"spec.{name}", spec.get(name), "field is immutable")
    started = (old.get("status") or {}).get("startTime")
    if spec["template"] != previous["template"] and (started or not previous.get("suspend")):
        faults.invalid("spec.template", spec["template"], "field is immutable")
