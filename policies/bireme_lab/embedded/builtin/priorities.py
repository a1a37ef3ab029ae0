"""The admission plugin Priority: the class of a pod becomes its value."""

from collections.abc import Callable
from typing import Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Object, forbidden
from bireme_lab.embedded.api.store import Store

SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def priority_admission(store: Store) -> Callable[[Attempt], Object]:
    """Return the mutator that resolves the PriorityClass of a new pod."""

    def admit(attempt: Attempt) -> Object:
        obj = attempt.obj or {}
        if attempt.resource.path != kinds.PODS or attempt.operation != "CREATE":
            return obj
        spec = obj["spec"]
        classes = store.collection(kinds.PRIORITY_CLASSES).objects
        name = spec.get("priorityClassName")
        if name:
            cls = classes.get(("", name))
            if cls is None:
                text = f"no PriorityClass with name {name} was found"
                raise forbidden(attempt.resource.subject(attempt.key[1]), text)
        else:
            defaults = [each for each in classes.values() if each.get("globalDefault")]
            cls = min(defaults, key=lambda each: each["value"], default=None)
        value = 0 if cls is None else cls["value"]
        policy = "PreemptLowerPriority" if cls is None else cls["preemptionPolicy"]
        if spec.get("priority") not in (None, value):
            text = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod "
                f"spec; priority admission controller computed {value} from the given "
                "PriorityClass name"
            )
            raise forbidden(attempt.resource.subject(attempt.key[1]), text)
        named = {"priorityClassName": cls["metadata"]["name"]} if cls is not None else {}
        return {**obj, "spec": {**spec, **named, "priority": value, "preemptionPolicy": policy}}

    return admit
