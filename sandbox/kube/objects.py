# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, change and delete: the part that is the same for all kinds. What differs is in the strategies."""

from __future__ import annotations

import random
import typing as t
import uuid
from datetime import datetime, timedelta

from . import apply as ssa
from .auth import Call
from .meta import (
    check_body,
    check_identity,
    check_metadata,
    drop_empty,
    keep_server_owned,
    moment,
    split_key,
    strip_server_owned,
    timestamp,
)  # fmt: skip
from .resources import Registry, Resource
from .status import Refusal, already_exists, bad_request, cause, forbidden, invalid, no_version, not_found, unmet
from .store import Item, Store, Table, clone
from .strategy import Strategy

Json = dict[str, t.Any]
Produce = t.Callable[[Json], Json]

_RANDOM = "bcdfghjklmnpqrstvwxz2456789"


class Objects:
    """The write path. All methods take the lock themselves."""

    def __init__(
        self, store: Store, registry: Registry, now: t.Callable[[], datetime], rng: random.Random,
        strategies: t.Callable[[Resource], Strategy], left: t.Callable[[str], None],
    ) -> None:  # fmt: skip
        self.store = store
        self.registry = registry
        self.now = now
        self._random = rng
        self._strategy = strategies
        self._left = left  # told the namespace in which something went

    def find(self, resource: Resource, namespace: str | None, name: str) -> Item | None:
        return self.store.table(resource.key).get(split_key(resource, namespace, name))

    def get(self, resource: Resource, namespace: str | None, name: str) -> Item:
        item = self.find(resource, namespace, name)
        if item is None:
            raise not_found(resource, name)
        return item

    # ---- create ------------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str | None, body: t.Any, call: Call) -> Item:
        obj = clone(check_body(resource, body, namespace))
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        strip_server_owned(metadata)
        drop_empty(obj)
        table = self.store.table(resource.key)
        with self.store.lock:
            self._require_namespace(resource, namespace, metadata.get("name") or "")
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = self._free_name(table, resource, namespace, metadata["generateName"])
            check_metadata(resource, obj)
            key = split_key(resource, namespace, metadata["name"])
            strategy = self._strategy(resource)
            if resource.status and not resource.keeps_status:
                obj.pop("status", None)
            strategy.restrict(call, None, obj, "")
            strategy.on_create(call, obj)
            metadata["uid"] = self.new_uid()
            metadata["creationTimestamp"] = timestamp(self.now())
            if resource.generation:
                metadata["generation"] = 1
            strategy.check(None, obj)
            if table.get(key) is not None:
                raise already_exists(resource, metadata["name"])
            if call.dry_run:
                return Item(key, obj, 0)
            item = self.store.put(table, key, obj)
            strategy.after(None, item)
            return item

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffixed(self, prefix: str) -> str:
        """The prefix and five random characters."""
        return prefix + "".join(self._random.choice(_RANDOM) for _ in range(5))

    def _free_name(self, table: Table, resource: Resource, namespace: str | None, prefix: str) -> str:
        while True:
            name = self.suffixed(prefix[:58])
            if table.get(split_key(resource, namespace, name)) is None:
                return name

    def _require_namespace(self, resource: Resource, namespace: str | None, name: str) -> None:
        if not resource.namespaced or namespace is None:
            return
        spaces = self.registry.of("namespaces")
        item = self.find(spaces, None, namespace)
        if item is None:
            raise not_found(spaces, namespace)
        if "deletionTimestamp" in item.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            told = cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise forbidden(resource, name, why, [told])

    # ---- change ------------------------------------------------------------------------------------------------------

    def replace(
        self, resource: Resource, namespace: str | None, name: str, body: t.Any, call: Call, sub: str = ""
    ) -> tuple[Item, bool]:
        """PUT. (item, created)."""
        new = clone(check_body(resource, body, namespace))
        with self.store.lock:
            if self.find(resource, namespace, name) is None and resource.upsert and not sub:
                new["metadata"].setdefault("name", name)
                new["metadata"].pop("resourceVersion", None)
                return self.create(resource, namespace, new, call), True
            if not new["metadata"].get("resourceVersion") and not resource.blind_update:
                self.get(resource, namespace, name)
                raise no_version(resource, name)
            return self.change(resource, namespace, name, lambda old: new, call, sub, patched=False), False

    def apply(
        self, resource: Resource, namespace: str | None, name: str, body: t.Any, call: Call, force: bool, sub: str
    ) -> tuple[Item, bool]:
        """Server-side apply. (item, created)."""
        if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
            raise bad_request("invalid object type: /, Kind=")
        wanted = check_body(resource, body, namespace)
        if wanted["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        if wanted["metadata"].setdefault("name", name) != name:
            raise bad_request(f"the name of the object ({wanted['metadata']['name']}) does not match the name on the URL ({name})")
        now = timestamp(self.now())

        def produce(old: Json | None) -> Json:
            return ssa.apply(resource.kind, old, wanted, call.manager, force, resource.api_version, now)

        with self.store.lock:
            if self.find(resource, namespace, name) is None and not sub:
                return self.create(resource, namespace, produce(None), call), True
            return self.change(resource, namespace, name, produce, call, sub, applied=True), False

    def change(
        self, resource: Resource, namespace: str | None, name: str, produce: Produce, call: Call, sub: str = "", applied: bool = False,
        patched: bool = True,
    ) -> Item:  # fmt: skip
        """Replace an object by ``produce(old)``, which must not change ``old``. A change of nothing writes nothing."""
        table = self.store.table(resource.key)
        strategy = self._strategy(resource)
        with self.store.lock:
            item = self.get(resource, namespace, name)
            old = item.obj
            new = clone(check_body(resource, produce(old), namespace))
            if refusal := check_identity(resource, old, new, patched):
                raise refusal
            new["metadata"]["name"] = name
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            keep_server_owned(old, new)
            new = self._isolate(resource, old, new, sub)
            drop_empty(new)
            self._check_finalizers(resource, old, new)
            check_metadata(resource, new)
            strategy.restrict(call, old, new, sub)
            strategy.on_update(call, old, new, sub)
            strategy.check(old, new)
            if resource.generation and _substance(old) != _substance(new):
                new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            if not applied and "managedFields" in old["metadata"]:
                new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
                ssa.note_update(resource.kind, old, new, call.manager, resource.api_version, timestamp(self.now()))
            if new == old:
                return item
            if call.dry_run:
                return Item(item.key, new, item.rv)
            return self._write(table, strategy, item, new)

    def _write(self, table: Table, strategy: Strategy, item: Item, new: Json) -> Item:
        written = self.store.put(table, item.key, new)
        metadata = new["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not held and strategy.may_vanish(new):
            return self._drop(table, strategy, written)
        strategy.after(item, written)
        return written

    def _drop(self, table: Table, strategy: Strategy, item: Item) -> Item:
        last = self.store.drop(table, item)
        strategy.gone(last)
        if namespace := last.obj["metadata"].get("namespace"):
            self._left(namespace)
        return last

    @staticmethod
    def _isolate(resource: Resource, old: Json, new: Json, sub: str) -> Json:
        """The main path leaves status alone, the status path everything else (nodes and pods also take labels and annotations there)."""
        if not resource.status:
            return new
        if sub not in ("status", "approval"):
            result = {key: value for key, value in new.items() if key != "status"}
            if "status" in old:
                result["status"] = old["status"]
            return result
        result = {**old, "metadata": new["metadata"] if resource.plural in ("nodes", "pods") else dict(old["metadata"])}
        result["metadata"]["managedFields"] = new["metadata"].get("managedFields")
        if "status" in new:
            result["status"] = new["status"]
        else:
            result.pop("status", None)
        return result

    @staticmethod
    def _check_finalizers(resource: Resource, old: Json, new: Json) -> None:
        if "deletionTimestamp" not in old["metadata"]:
            return
        added = [name for name in new["metadata"].get("finalizers") or [] if name not in (old["metadata"].get("finalizers") or [])]
        if added:
            told = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"
            told += ", ".join(f'"{name}"' for name in added) + "}"
            raise invalid(resource, old["metadata"]["name"], [cause("FieldValueForbidden", told, "metadata.finalizers")])

    # ---- delete ------------------------------------------------------------------------------------------------------

    def delete(self, resource: Resource, namespace: str | None, name: str, options: Json, call: Call) -> tuple[Item, bool]:
        """(last version, gone). Not gone: finalizers or a grace period hold it. A bad precondition is 409."""
        table = self.store.table(resource.key)
        strategy = self._strategy(resource)
        with self.store.lock:
            item = self.get(resource, namespace, name)
            self._check_preconditions(resource, item.obj, options.get("preconditions") or {})
            strategy.restrict_delete(call, item.obj)
            grace = strategy.grace(item.obj, options.get("gracePeriodSeconds"))
            metadata = item.obj["metadata"]
            finalizers = list(metadata.get("finalizers") or [])
            if options.get("propagationPolicy") == "Foreground" and "foregroundDeletion" in finalizers:
                finalizers.remove("foregroundDeletion")  # nothing depends on it here: dependents go by their own deletion
            held = bool(finalizers) or not strategy.may_vanish(item.obj)
            if grace == 0 and not held:
                if call.dry_run:
                    return item, True
                return self._drop(table, strategy, Item(item.key, strategy.at_the_end(item.obj), item.rv)), True
            if "deletionTimestamp" in metadata:
                left = metadata.get("deletionGracePeriodSeconds") or 0
                if grace >= left:
                    return item, False
                end = moment(metadata["deletionTimestamp"]) - timedelta(seconds=left - grace)
            else:
                end = self.now() + timedelta(seconds=grace)
            new = {**item.obj, "metadata": {**metadata, "deletionTimestamp": timestamp(end), "deletionGracePeriodSeconds": grace}}
            if "generation" in metadata and "deletionTimestamp" not in metadata:
                new["metadata"]["generation"] = metadata["generation"] + 1
            if call.dry_run:
                return Item(item.key, new, item.rv), False
            strategy.on_delete(new)
            written = self.store.put(table, item.key, new)
            strategy.after(item, written)
            still = table.get(item.key)
            return (written, True) if still is None else (still, False)

    def vanish(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Remove at once, whatever holds it (garbage collection)."""
        with self.store.lock:
            item = self.find(resource, namespace, name)
            if item is not None:
                self._drop(self.store.table(resource.key), self._strategy(resource), item)

    @staticmethod
    def _check_preconditions(resource: Resource, obj: Json, wanted: Json) -> None:
        metadata = obj["metadata"]
        if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
            why = (
                f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise unmet(resource, metadata["name"], why)
        if wanted.get("resourceVersion") and wanted["resourceVersion"] != metadata["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified"
            )
            raise unmet(resource, metadata["name"], why)


def _substance(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
