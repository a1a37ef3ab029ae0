"""Jobs of ``batch/v1``: defaults and validation."""

from typing import Final

from bireme_lab.embedded.api import metadata
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.builtin.plain import filled
from bireme_lab.embedded.builtin.pods import complete_template, validate_spec

_RESTARTS: Final = ("OnFailure", "Never")
_MODES: Final = ("NonIndexed", "Indexed")
_NOT_NEGATIVE: Final = (
    *("parallelism", "completions", "activeDeadlineSeconds"),
    *("backoffLimit", "ttlSecondsAfterFinished"),
)
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
    template = complete_template(template)
    if old is None and not spec["manualSelector"]:
        meta = obj["metadata"]
        own = _own_labels(meta)
        template_meta = template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), **own}
        template["metadata"] = {**template_meta, "labels": labels}
        selector = dict(spec.get("selector") or {})
        uid = {"batch.kubernetes.io/controller-uid": meta["uid"]}
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **uid}
        spec = {**spec, "selector": selector}
    meta, template_meta = obj["metadata"], template.get("metadata") or {}
    if template_meta.get("labels") and not meta.get("labels"):
        obj = {**obj, "metadata": {**meta, "labels": dict(template_meta["labels"])}}
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
    elif template.get("restartPolicy") not in _RESTARTS:
        place = "spec.template.spec.restartPolicy"
        faults.unsupported(place, template.get("restartPolicy"), _RESTARTS)
    for name in _NOT_NEGATIVE:
        if isinstance(spec.get(name), int) and spec[name] < 0:
            faults.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    _validate_selector(obj, faults, is_new=old is None)
    if spec["completionMode"] not in _MODES:
        faults.unsupported("spec.completionMode", spec["completionMode"], _MODES)
    elif spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        faults.required("spec.completions", "when completion mode is Indexed")
    if old is None:
        # A label of its pods has the name of the Job.
        metadata.check_label("job-name", obj["metadata"]["name"], faults, "spec.template.labels")
        return
    previous = old["spec"]
    is_elastic = (
        spec["completionMode"] == "Indexed" and spec.get("completions") == (spec["parallelism"])
    )
    if spec.get("completions") != previous.get("completions") and not is_elastic:
        is_indexed = spec["completionMode"] == "Indexed"
        text = "can only be modified in tandem with spec.parallelism"
        text = text if is_indexed else "field is immutable"
        faults.invalid("spec.completions", spec.get("completions"), text)
    for name in _FIXED:
        if spec.get(name) != previous.get(name):
            faults.invalid(f"spec.{name}", spec.get(name), "field is immutable")
    started = (old.get("status") or {}).get("startTime")
    if spec["template"] != previous["template"] and (started or not previous.get("suspend")):
        faults.invalid("spec.template", spec["template"], "field is immutable")


def _validate_selector(obj: Object, faults: Faults, *, is_new: bool) -> None:
    """Add the faults of a selector that finds other pods than the Job's own."""
    spec, uid = obj["spec"], obj["metadata"]["uid"]
    generated = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    if spec.get("selector") is None:
        faults.required("spec.selector")
    elif is_new and not spec.get("manualSelector") and spec["selector"] != generated:
        faults.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not matches_labels(spec.get("selector"), labels):
        text = "`selector` does not match template `labels`"
        faults.invalid("spec.template.metadata.labels", labels, text)
