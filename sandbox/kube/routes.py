# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to an answer: authorization, then the verb."""

from __future__ import annotations

import typing as t

from . import discovery, pod_proxy, scale
from .auth import Call, Identity
from .crd import unknown
from .disruption import Budgets
from .parts import Parts
from .patches import json_patch, merge_patch
from .pod_logs import pod_log
from .pods import Pods
from .render import collection, plain, single
from .request import Request, Target, target
from .resources import Resource
from .selectors import Fields, labels_test
from .status import Refusal, bad_option, bad_request, cause, invalid, method_not_allowed, no_such_path, success, unsupported_media
from .store import Item, encode
from .strategic import strategic_patch
from .watch import Watch

Json = dict[str, t.Any]

_MERGE, _STRATEGIC, _JSON, _APPLY = (
    "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json",
    "application/apply-patch+yaml",
)  # fmt: skip


class Answer(t.NamedTuple):
    """``body`` is the whole of it, or a stream."""

    code: int
    body: bytes | Watch
    media: str = "application/json"


def _answer(code: int, body: Json) -> Answer:
    return Answer(code, encode(body) + b"\n")


class Routes:
    def __init__(self, api: Parts) -> None:
        self.api = api

    def __call__(self, request: Request, identity: Identity) -> Answer:
        plain_path = request.path.rstrip("/")
        if plain_path in ("/healthz", "/livez", "/readyz"):
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        described = self._described(plain_path, request)
        if described is not None:
            return _answer(200, described)
        if self._unknown(plain_path):
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if (through := pod_proxy.proxied(request.path)) is not None:
            return self._proxy(through, request, identity)
        found = target(self.api.registry, request.path)
        if not found.resource.stored:
            return self._review(found, request, identity)
        return self._object(found, request, identity) if found.name else self._collection(found, request, identity)

    def _unknown(self, path: str) -> bool:
        """Neither the API nor one of its groups."""
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) > 2:
            return parts[2] not in self.api.registry.groups().get(parts[1], [])
        return parts[:2] != ["api", "v1"]

    def _described(self, path: str, request: Request) -> Json | None:
        registry, parts = self.api.registry, path.strip("/").split("/")
        if path == "/version":
            return discovery.version(self.api.version)
        if path == "/api":
            return discovery.core_versions(request.host)
        if path == "/apis":
            return discovery.group_list(registry)
        if path == "/openapi/v3":
            return discovery.openapi_index(registry)
        prefix = parts[:2] == ["openapi", "v3"]
        rest = parts[2:] if prefix else parts
        group = "" if rest[:1] == ["api"] else rest[1] if len(rest) > 1 and rest[0] == "apis" else None
        if group is None or group not in registry.groups():
            return None
        if len(rest) == 2 and group:
            return discovery.group(registry, group)
        if len(rest) == (3 if group else 2) and rest[-1] in registry.groups()[group]:
            make = discovery.openapi if prefix else discovery.resource_list
            return make(registry, group, rest[-1])
        return None

    # ---- collections -------------------------------------------------------------------------------------------------

    def _collection(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource, namespace = found.resource, found.namespace
        demand = self.api.authorizer.demand
        if request.method == "GET":
            watching = request.flag("watch")
            demand(identity, "watch" if watching else "list", resource, namespace, "")
            return self._watch(found, request) if watching else self._list(found, request)
        if request.method == "POST":
            if resource.namespaced and namespace is None:
                raise method_not_allowed()
            demand(identity, "create", resource, namespace, "")
            item = self.api.objects.create(resource, namespace, request.document(), request.call(identity))
            return Answer(201, single(resource, item, request.form, self.api.now()))
        if request.method == "DELETE":
            demand(identity, "deletecollection", resource, namespace, "")
            return self._delete_all(found, request, identity)
        raise method_not_allowed()

    def _tests(self, resource: Resource, request: Request) -> tuple[t.Callable[[Json], bool], Fields, bool]:
        fits = labels_test(request.query.get("labelSelector", ""))
        fields = Fields(resource, request.query.get("fieldSelector", ""))
        tests = [test for test in (fits, fields or None) if test is not None]
        return (lambda obj: all(test(obj) for test in tests)), fields, bool(tests)

    def _select(self, resource: Resource, namespace: str | None, request: Request) -> tuple[int, list[Item]]:
        test, fields, filtered = self._tests(resource, request)
        self._refresh(resource, namespace)
        with self.api.store.lock:
            table, rv = self.api.store.table(resource.key), self.api.store.rv
            node = fields.exact.get("spec.nodeName") if resource.plural == "pods" else None
            items = table.select(namespace, node or None)
        return rv, [item for item in items if test(item.obj)] if filtered else items

    def _refresh(self, resource: Resource, namespace: str | None, name: str | None = None) -> None:
        strategy = self.api.strategies(resource)
        if isinstance(strategy, Budgets):
            strategy.refresh(namespace, name)

    def _list(self, found: Target, request: Request) -> Answer:
        resource, namespace = found.resource, found.namespace
        filters = (request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        what = "|".join((resource.qualified, namespace or "", *filters))
        limit = max(0, request.number("limit") or 0)
        items, metadata = self.api.pages.page(
            what, lambda: self._select(resource, namespace, request), limit, request.query.get("continue", ""), not any(filters)
        )
        include = request.query.get("includeObject", "Metadata")
        return Answer(200, collection(resource, items, metadata, request.form, self.api.now(), include))

    def _watch(self, found: Target, request: Request) -> Answer:
        resource, namespace = found.resource, found.namespace
        test, _fields, _filtered = self._tests(resource, request)
        text = request.query.get("resourceVersion", "")
        if text and not text.isdigit():
            raise Refusal(500, "", f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
        initial: list[Item] = []
        after = int(text or 0)
        mark = request.flag("sendInitialEvents")
        if mark and request.query.get("resourceVersionMatch") != "NotOlderThan":
            told = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise bad_option("ListOptions", "resourceVersionMatch", "FieldValueForbidden", told)
        if mark or text in ("", "0"):
            after, initial = self._select(resource, namespace, request)
        prefix = f"{namespace}/" if resource.namespaced and namespace else ""

        def wanted(obj: Json) -> bool:
            return (not prefix or obj["metadata"].get("namespace") == namespace) and test(obj)

        form, include = request.form, request.query.get("includeObject", "Metadata")
        rendered = (lambda item: single(resource, item, form, self.api.now(), include)) if form.table or form.metadata_only else (
            lambda item: plain(resource, item)
        )  # fmt: skip
        timeout = request.number("timeoutSeconds")
        stream = Watch(
            self.api.store, resource, after, wanted, rendered, seconds=self.api.seconds, speed=self.api.speed, timeout=timeout,
            bookmarks=request.flag("allowWatchBookmarks"), initial=initial, mark_initial=mark, lost=request.lost,
        )  # fmt: skip
        return Answer(200, stream)

    def _delete_all(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource = found.resource
        _rv, items = self._select(resource, found.namespace, request)
        call, options = request.call(identity), self._options(request)
        for item in items:
            metadata = item.obj["metadata"]
            try:
                self.api.objects.delete(resource, metadata.get("namespace"), metadata["name"], options, call)
            except Refusal as refusal:
                if refusal.code != 404:
                    raise
        return Answer(200, collection(resource, items, {"resourceVersion": str(self.api.store.rv)}, request.form, self.api.now()))

    # ---- single objects ----------------------------------------------------------------------------------------------

    def _object(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource, namespace, name, sub = found
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}.get(request.method)
        if (
            verb is None
            or (verb == "create") != (sub in ("eviction", "binding"))
            or (verb == "delete" and sub)
            or (sub == "log" and verb != "get")
        ):
            raise method_not_allowed()
        if resource.shares is not None and verb not in resource.verbs:
            raise method_not_allowed()
        self.api.authorizer.demand(identity, verb, resource, namespace, name, sub)
        if verb == "get":
            self._refresh(resource, namespace, name)
            item = self.api.objects.get(resource, namespace, name)
            if sub == "scale":
                return _answer(200, scale.read(resource, item.obj))
            if sub == "log":
                return Answer(200, pod_log(self.api.pod_logs, item.obj, request).encode(), "text/plain")
            return Answer(200, single(resource, item, request.form, self.api.now(), request.query.get("includeObject", "Metadata")))
        if verb == "create":
            return self._post(found, request, identity)
        if verb == "delete":
            return self._delete(found, request, identity)
        call = request.call(identity)
        if sub == "scale":
            return self._scale(found, request, call)
        if verb == "update":
            body = request.document()
            item, created = self.api.objects.replace(resource, namespace, name, body, call, "status" if sub == "finalize" else sub)
            return Answer(201 if created else 200, single(resource, item, request.form, self.api.now()))
        return self._patch(found, request, identity)

    def _proxy(self, through: pod_proxy.Proxied, request: Request, identity: Identity) -> Answer:
        """What a program in a pod answers. Real servers pass every method on, with a right of its own; here only GET is."""
        if request.method != "GET":
            raise method_not_allowed()
        resource = self.api.registry.of("pods")
        self.api.authorizer.demand(identity, "get", resource, through.namespace, through.name, "proxy")
        item = self.api.objects.get(resource, through.namespace, through.name)
        code, text = pod_proxy.answer(self.api.pod_servers, item.obj, through.port, through.path)
        return Answer(code, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _post(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource, namespace, name, sub = found
        body, call = request.document() or {}, request.call(identity)
        strategy = self.api.strategies(resource)
        if sub == "binding" and isinstance(strategy, Pods):
            return _answer(201, strategy.bind(namespace or "", name, body, call))
        budgets = self.api.strategies(self.api.registry.of("poddisruptionbudgets", "policy"))
        if sub == "eviction" and isinstance(budgets, Budgets):
            if body.get("apiVersion") not in (None, "policy/v1"):
                raise bad_request(f'no kind "Eviction" is registered for version "{body["apiVersion"]}"')
            return _answer(201, budgets.evict(resource, namespace or "", name, body, call))
        raise no_such_path()

    def _patch(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource, namespace, name, sub = found
        objects, call, media = self.api.objects, request.call(identity), request.media
        if media == _APPLY:
            if not request.query.get("fieldManager"):
                told = "Required value: is required for apply patch"
                raise bad_option("PatchOptions", "fieldManager", "FieldValueRequired", told)
            body = request.document()
            if resource.custom and resource.schema and isinstance(body, dict) and (fields := unknown(resource.schema, body)):
                told = "; ".join(f".{field}: field not declared in schema" for field in fields)
                what = f"{namespace or ''}/{name}; {resource.api_version}, Kind={resource.kind}"
                raise Refusal(500, "", f"failed to create typed patch object ({what}): {told}")
            if objects.find(resource, namespace, name) is None:
                self.api.authorizer.demand(identity, "create", resource, namespace, name)
            item, created = objects.apply(resource, namespace, name, body, call, request.flag("force"), sub)
            return Answer(201 if created else 200, single(resource, item, request.form, self.api.now()))
        patch = request.document()
        if media not in (_MERGE, _JSON, _STRATEGIC) or (media == _STRATEGIC and resource.custom):
            raise unsupported_media()

        def produce(old: Json) -> Json:
            if media == _MERGE:
                return merge_patch(old, patch)
            return json_patch(old, patch) if media == _JSON else strategic_patch(resource.kind, old, patch)

        item = objects.change(resource, namespace, name, produce, call, sub)
        return Answer(200, single(resource, item, request.form, self.api.now()))

    def _scale(self, found: Target, request: Request, call: Call) -> Answer:
        resource, namespace, name, _sub = found
        body, media = request.document(), request.media

        def produce(old: Json) -> Json:
            before = scale.scale(resource, old)
            if request.method == "PUT":
                new = body
            else:
                new = json_patch(before, body) if media == _JSON else merge_patch(before, body)
            return scale.scaled(resource, old, new)

        item = self.api.objects.change(resource, namespace, name, produce, call)
        return _answer(200, scale.scale(resource, item.obj))

    @staticmethod
    def _options(request: Request) -> Json:
        options = request.document() or {}
        if not isinstance(options, dict):
            raise bad_request("DeleteOptions expected")
        if "gracePeriodSeconds" in request.query and options.get("gracePeriodSeconds") is None:
            options["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
        if options.get("dryRun"):
            request.query["dryRun"] = options["dryRun"][0]
        return options

    def _delete(self, found: Target, request: Request, identity: Identity) -> Answer:
        resource, namespace, name, _sub = found
        options = self._options(request)
        call = request.call(identity)
        item, gone = self.api.objects.delete(resource, namespace, name, options, call)
        if gone and not resource.returns_deleted:
            details = {"name": name, "kind": resource.plural, "uid": item.obj["metadata"]["uid"]}
            if resource.group:
                details["group"] = resource.group
            return _answer(200, success(details=details))
        return Answer(200, single(resource, item, request.form, self.api.now()))

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _review(self, found: Target, request: Request, identity: Identity) -> Answer:
        if request.method != "POST" or found.name:
            raise method_not_allowed()
        self.api.authorizer.demand(identity, "create", found.resource, None, "")
        body = request.document() or {}
        head = {"kind": found.resource.kind, "apiVersion": found.resource.api_version, "metadata": {}}
        if found.resource.kind == "SelfSubjectReview":
            info: Json = {"username": identity.user, "groups": identity.ordered_groups}
            return _answer(201, {**head, "status": {"userInfo": info}})
        spec = body.get("spec") or {}
        asked = spec.get("resourceAttributes")
        if asked is None and spec.get("nonResourceAttributes") is None:
            told = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(found.resource, "", [cause("FieldValueInvalid", told, "spec.resourceAttributes")])
        if asked is None:
            return _answer(201, {**head, "spec": spec, "status": {"allowed": True}})
        path = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
        allowed = self.api.authorizer.allows(
            identity, asked.get("verb", ""), asked.get("group", ""), path, asked.get("namespace") or None, asked.get("name", "")
        )
        return _answer(201, {**head, "spec": spec, "status": {"allowed": allowed}})
