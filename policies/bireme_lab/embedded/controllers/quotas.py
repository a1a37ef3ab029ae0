"""The quota controller: the amounts that the objects of a namespace use of each ResourceQuota."""

from dataclasses import dataclass, field

from bireme_lab.embedded.amounts import ZERO, Amounts, format_amounts, parse_amounts, total
from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.builtin import quota_usage
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import key_of


@dataclass(eq=False)
class Quotas:
    """Follows quotas and what they count; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[Key] = field(init=False)
    _followed: set[str] = field(default_factory=set)
    """Paths of the kinds that quotas have named."""

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.QUOTAS, self._changed)

    def _changed(self, change: StoreChange) -> None:
        # Admission charges a quota before the object is stored, which may fail: so usage is
        # counted again after every change of it.
        if change.new is not None:
            self.work.add(key_of(change.new))

    def _object_changed(self, change: StoreChange) -> None:
        namespace = change.object["metadata"]["namespace"]
        for key in self.client.api.store.collection(kinds.QUOTAS).objects:
            if key[0] == namespace:
                self.work.add(key)
        end = None if change.new is None else quota_usage.end_of_grace(change.new)
        if end is not None and end > self.client.now:
            for key in self.client.api.store.collection(kinds.QUOTAS).objects:
                if key[0] == namespace:
                    self.work.add_later(end - self.client.now, key)

    def _sync(self, key: Key) -> None:
        quota = self.client.get(kinds.QUOTAS, key)
        if quota is None:
            return
        hard = parse_amounts(quota["spec"].get("hard"))
        usage = self._usage(quota, hard)
        status = {"hard": format_amounts(hard), "used": format_amounts(usage)} if hard else {}
        self.client.set_status(kinds.QUOTAS, key, status)

    def _usage(self, quota: Object, hard: Amounts) -> Amounts:
        """Return the amounts of all kinds that a quota names."""
        namespace, scopes = quota["metadata"]["namespace"], quota_usage.scopes_of(quota["spec"])
        usage: Amounts = {}
        for resource in list(self.client.api.resources):
            names = quota_usage.names_of(resource, hard)
            if not names or not quota_usage.is_counted(resource):
                continue
            if resource.path not in self._followed:
                self._followed.add(resource.path)
                self.client.follow(resource.path, self._object_changed)
            used = total(
                quota_usage.usage_of(resource, obj, self.client.now)
                for obj in self.client.objects(resource.path)
                if obj["metadata"]["namespace"] == namespace
                and quota_usage.is_in_scopes(resource, obj, scopes)
            )
            usage |= {name: used.get(name, ZERO) for name in names}
        return usage
