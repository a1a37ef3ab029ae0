"""The admission plugin ServiceAccount: a pod's account exists."""

from collections.abc import Callable
from typing import Final

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Object, forbidden
from bireme_lab.embedded.api.store import Store

_DEFAULT: Final = "default"
"""The account of every namespace, which a controller makes a moment after the namespace."""


def account_admission(store: Store) -> Callable[[Attempt], Object]:
    """Return the mutator that refuses a new pod with an account that does not exist."""

    def admit(attempt: Attempt) -> Object:
        obj = attempt.obj or {}
        if attempt.resource.path != kinds.PODS or attempt.operation != "CREATE":
            return obj
        namespace, name = attempt.key[0], obj["spec"].get("serviceAccountName") or _DEFAULT
        if name != _DEFAULT and store.get(kinds.SERVICE_ACCOUNTS, (namespace, name)) is None:
            text = (
                f"error looking up service account {namespace}/{name}: "
                f'serviceaccount "{name}" not found'
            )
            raise forbidden(attempt.resource.subject(attempt.key[1]), text)
        return obj

    return admit
