# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all objects have in common: names, labels, and the metadata that only the server writes."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime, timezone

from .resources import Resource
from .status import Refusal, bad_request, cause, conflict, invalid, modified

Json = dict[str, t.Any]

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PATH_NAME = re.compile(r"^(?!\.{1,2}$)[^/%]+$")
_KEY_NAME = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ANNOTATIONS = 256 * 1024  # bytes of keys and values of all annotations of an object
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_PLAIN_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io")
_GROUPS_WITH_FREE_NAMES = frozenset({"rbac.authorization.k8s.io"})


def timestamp(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def split_key(resource: Resource, namespace: str | None, name: str) -> str:
    """The key of an object in its table."""
    return f"{namespace}/{name}" if resource.namespaced else name


def check_body(resource: Resource, body: t.Any, namespace: str | None) -> Json:
    """The body as an object of the kind, without kind and apiVersion for built-in kinds."""
    if not isinstance(body, dict):
        raise bad_request(f"{resource.kind} expected, got {type(body).__name__}")
    kind, version = body.get("kind"), body.get("apiVersion")
    if version and version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind and kind != resource.kind:
        raise bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: no kind "{kind}"')
    if resource.custom and not kind:
        raise bad_request("Object 'Kind' is missing in the body of the request")
    metadata = body.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata is not an object")
    obj = {key: value for key, value in body.items() if key not in ("kind", "apiVersion", "metadata")}
    head: Json = {"apiVersion": resource.api_version, "kind": resource.kind} if resource.custom else {}
    obj = {**head, "metadata": dict(metadata), **obj}
    given = metadata.get("namespace")
    if resource.namespaced:
        if given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        obj["metadata"]["namespace"] = namespace
    else:
        obj["metadata"].pop("namespace", None)
    return obj


def drop_empty(obj: Json) -> None:
    """Empty maps and lists of metadata are not stored."""
    metadata = obj["metadata"]
    for key in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName"):
        if key in metadata and not metadata[key]:
            del metadata[key]


def check_metadata(resource: Resource, obj: Json) -> None:
    """Refusal 422 for a bad name, label or annotation."""
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    causes = []
    if not name:
        causes.append(cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name"))
    elif resource.group in _GROUPS_WITH_FREE_NAMES:
        if not _PATH_NAME.match(name):
            causes.append(cause("FieldValueInvalid", f'Invalid value: "{name}": may not contain "/" or "%"', "metadata.name"))
    elif not (_LABEL if resource.kind == "Namespace" else _SUBDOMAIN).match(name) or len(name) > 253:
        causes.append(cause("FieldValueInvalid", f'Invalid value: "{name}": {_SUBDOMAIN_RULE}', "metadata.name"))
    for at, finalizer in enumerate(metadata.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            told = f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified'
            causes.append(cause("FieldValueInvalid", told, f"metadata.finalizers[{at}]"))
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str):
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot unmarshal '
                f"{_go_type(value)} into Go struct field ObjectMeta.metadata.labels of type string"
            )
        causes += [*key_causes(key, "metadata.labels"), *value_causes(value, "metadata.labels")]
    annotations = metadata.get("annotations") or {}
    for key, value in annotations.items():
        causes += key_causes(key.lower(), "metadata.annotations")
        if not isinstance(value, str):
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot unmarshal '
                f"{_go_type(value)} into Go struct field ObjectMeta.metadata.annotations of type string"
            )
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS:
        causes.append(cause("FieldValueTooLong", f"Too long: may not be more than {_ANNOTATIONS} bytes", "metadata.annotations"))
    if causes:
        raise invalid(resource, name, causes)


def key_causes(key: str, field: str) -> list[Json]:
    """What is wrong with the key of a label, an annotation or a taint."""
    prefix, slash, last = key.rpartition("/")
    if _KEY_NAME.match(last) and len(last) <= 63 and (not slash or _SUBDOMAIN.match(prefix)):
        return []
    rule = "name part must be no more than 63 bytes" if len(last) > 63 else _KEY_RULE
    if "/" in prefix:
        rule = (
            _KEY_RULE.replace("name part", "a valid label key")
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    return [cause("FieldValueInvalid", f'Invalid value: "{key}": {rule}', field)]


def value_causes(value: str, field: str) -> list[Json]:
    """What is wrong with the value of a label or a taint."""
    if _VALUE.match(value) and len(value) <= 63:
        return []
    rule = "must be no more than 63 bytes" if len(value) > 63 else _VALUE_RULE
    return [cause("FieldValueInvalid", f'Invalid value: "{value}": {rule}', field)]


def _go_type(value: t.Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else "array" if isinstance(value, list) else "object"


def keep_server_owned(old: Json, new: Json) -> None:
    """A client cannot change what only the server writes."""
    before, after = old["metadata"], new["metadata"]
    for key in _SERVER_OWNED:
        if key in before:
            after[key] = before[key]
        else:
            after.pop(key, None)
    if "generateName" in before:
        after["generateName"] = before["generateName"]


def strip_server_owned(metadata: Json) -> None:
    for key in (*_SERVER_OWNED, "resourceVersion"):
        metadata.pop(key, None)


def check_identity(resource: Resource, old: Json, new: Json, patched: bool) -> Refusal | None:
    """The refusal of a write whose body speaks of another object or another version of it."""
    before, after = old["metadata"], new["metadata"]
    name = before["name"]
    if not after.get("name"):
        return bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if after["name"] != name:
        return bad_request(f"the name of the object ({after['name']}) does not match the name on the URL ({name})")
    uid = after.get("uid")
    if uid not in (None, "", before["uid"]):
        if patched:
            told = cause("FieldValueInvalid", f'Invalid value: "{uid}": field is immutable', "metadata.uid")
            return invalid(resource, name, [told])
        key = "/".join(filter(None, ("/registry", resource.plural, before.get("namespace"), name)))
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
        return conflict(
            resource, name, f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        )
    if after.get("resourceVersion") not in (None, "", before["resourceVersion"]):
        return modified(resource, name)
    return None
