# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply of whole manifests: the API path of each object by discovery, and what the apply changes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from ..core.errors import Conflict, NotFound, lazy
from ..core.events import render
from ..core.task import Task
from ..model.labels import MANIFEST_HASH_ANNOTATION
from .client import Json, Kube, causes_of

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

FIELD_MANAGER = "tgp.gpu"
_OF_THE_SERVER = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
_COLUMNS = {"kind": "kind", "namespace": "namespace", "name": "name", "result": "result"}
_ESTABLISH_TRIES = 10  # a second apart: a new kind is served a moment after its definition is


@dataclasses.dataclass(frozen=True)
class AppliedObject:
    """One object of a manifest. ``before`` is None when it did not exist. Both sides are without the server's own metadata and status."""

    kind: str
    namespace: str
    name: str
    before: Json | None
    after: Json

    @property
    def result(self) -> str:
        if self.before is None:
            return "created"
        return "unchanged" if self.before == self.after else "changed"


def apply_objects(kube: Kube, objects: t.Sequence[Json], *, force: bool, dry_run: bool) -> list[AppliedObject]:
    """Apply the objects in their order.

    ``dry_run`` lets the API server compute the result without storing it. An object whose namespace or kind would be created by the same run
    cannot be computed and is taken as it is written. Conflict when another field manager owns a field with another value, unless ``force``.
    An object of :func:`with_hash` that the cluster has unchanged is only read.
    """
    kinds = _Kinds(kube)
    promised: set[tuple[str, str]] = set()  # kinds and namespaces that this run creates
    applied = []
    for body in objects:
        namespace = str(body["metadata"].get("namespace") or "")
        api_version, kind = str(body["apiVersion"]), str(body["kind"])
        coming = (api_version, kind) in promised
        if dry_run and (coming or ("namespace", namespace) in promised):
            done = AppliedObject(kind, namespace, str(body["metadata"]["name"]), None, body)
        else:
            path = kinds.path(api_version, kind, namespace, str(body["metadata"]["name"]), wait=coming)
            done = _apply(kube, path, body, force=force, dry_run=dry_run)
        if done.before is None:
            promised.update(_promises(body))
        applied.append(done)
    return applied


def _promises(body: Json) -> t.Iterator[tuple[str, str]]:
    if body["kind"] == "Namespace":
        yield "namespace", str(body["metadata"]["name"])
    elif body["kind"] == "CustomResourceDefinition":
        for version in body["spec"]["versions"]:
            yield f"{body['spec']['group']}/{version['name']}", str(body["spec"]["names"]["kind"])


def _apply(kube: Kube, path: str, body: Json, *, force: bool, dry_run: bool) -> AppliedObject:
    meta = body["metadata"]
    before = kube.find(path)
    if before is not None and _is_applied(before, body):
        spec = _spec_of(before)
        return AppliedObject(str(body["kind"]), str(meta.get("namespace") or ""), str(meta["name"]), spec, spec)
    after = kube.apply(path, body, FIELD_MANAGER, force=force, dry_run=dry_run)
    return AppliedObject(
        str(body["kind"]), str(meta.get("namespace") or ""), str(meta["name"]), before and _spec_of(before), _spec_of(after)
    )


def with_hash(body: Json) -> Json:
    """The object with a hash of itself among its annotations, which changes when a field is left out, too."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    body = json.loads(json.dumps(body))  # without Ansible's own types of text and numbers, which YAML does not know
    meta = body["metadata"]
    return {**body, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), MANIFEST_HASH_ANNOTATION: digest}}}


def _is_applied(live: Json, body: Json) -> bool:
    """Whether the cluster has this version, and nobody has changed a field of it since."""
    return MANIFEST_HASH_ANNOTATION in (body["metadata"].get("annotations") or {}) and _includes(live, body)


def _includes(live: t.Any, wanted: t.Any) -> bool:
    """Whether every field that is wanted is there with its value. The API server adds defaults to mappings, and none to lists."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and _includes(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_includes, live, wanted))
    return bool(live == wanted)


def _spec_of(raw: Json) -> Json:
    """The object without what the API server adds by itself."""
    meta = {key: value for key, value in raw["metadata"].items() if key not in _OF_THE_SERVER}
    return {**{key: value for key, value in raw.items() if key != "status"}, "metadata": meta}


class _Kinds:
    """The plural name and scope of kinds, asked of the API server once per group and version."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._served: dict[str, dict[str, Json]] = {}

    def path(self, api_version: str, kind: str, namespace: str, name: str, *, wait: bool) -> str:
        """The API path of an object. ``wait`` for a kind that was defined a moment ago."""
        resource = self._resource(api_version, kind)
        for _attempt in range(_ESTABLISH_TRIES if wait else 0):
            if resource is not None:
                break
            self._kube.clock.sleep(1.0)
            self._served.pop(api_version, None)
            resource = self._resource(api_version, kind)
        if resource is None:
            raise NotFound(
                f"{self._kube.source}: the API server does not serve {kind} of {api_version}.",
                remedy="Apply its definition first, or upgrade the cluster.",
                service="kubernetes",
                status=404,
            )
        place = f"/namespaces/{namespace or 'default'}" if resource["namespaced"] else ""
        return f"{_root(api_version)}{place}/{resource['name']}/{name}"

    def _resource(self, api_version: str, kind: str) -> Json | None:
        if api_version not in self._served:
            try:
                listed = self._kube.get(_root(api_version)).get("resources") or []
            except NotFound:  # the API server answers a group that it does not serve with a plain page
                listed = []
            self._served[api_version] = {str(one["kind"]): one for one in listed if "/" not in one["name"]}
        return self._served[api_version].get(kind)


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _conflict_sentence(error: Conflict) -> str:
    """Which fields of an object another manager owns, as the API server says it."""
    return ", ".join(f"{one.get('field')} ({one.get('message')})" for one in causes_of(error)) or error.message


def apply_for(task: Task, kube: Kube, objects: t.Sequence[Json], *, what: str, otherwise: str) -> Json:
    """:func:`apply_objects` as options and mode of the task say, and :func:`_applied_result` of it. ``what`` the objects belong to, and what to
    do ``otherwise`` than to take over fields of another manager, for the Conflict."""
    try:
        applied = apply_objects(kube, objects, force=task.params["force"], dry_run=task.check_mode)
    except Conflict as error:
        raise Conflict(
            f"Another field manager owns fields of {what}: {_conflict_sentence(error)}.",
            remedy=f"{otherwise}, or take them over with {task.called('force')}=true.",
            service="kubernetes",
            status=error.status,
        ) from error
    return _applied_result(task, applied)


def _applied_result(task: Task, applied: t.Sequence[AppliedObject]) -> Json:
    """Prints a row for each object; ``changed``, ``objects`` and, if it was asked for, ``diff`` of a module's result."""
    rows = [{"kind": one.kind, "namespace": one.namespace, "name": one.name, "result": one.result} for one in applied]
    for line in render(rows, _COLUMNS):
        task.progress(line)
    result: Json = {"changed": any(one.result != "unchanged" for one in applied), "objects": rows}
    if task.diff_mode:
        result["diff"] = [_difference(one) for one in applied if one.result != "unchanged"]
    return result


def _difference(one: AppliedObject) -> dict[str, str]:
    name = f"{one.kind} {one.namespace}/{one.name}" if one.namespace else f"{one.kind} {one.name}"
    return {
        "before_header": name,
        "after_header": name,
        "before": "" if one.before is None else yaml.safe_dump(one.before),
        "after": yaml.safe_dump(one.after),
    }
