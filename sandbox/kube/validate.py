# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of single kinds that clients are known to run into."""

from __future__ import annotations

import base64
import binascii
import re
import typing as t

from .meta import moment
from .quantity import quantity
from .resources import Resource
from .selectors import requirement
from .status import Refusal, bad_request, cause, invalid

Json = dict[str, t.Any]

_MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_DATA_KEY = re.compile(r"^(?!\.\.)[-._A-Za-z0-9]{1,253}$")
_DATA_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
    "regex used for validation is '[-._a-zA-Z0-9]+')"
)
_LIMIT = 1024 * 1024  # bytes of data in one ConfigMap or Secret
_POD_MUTABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates", "nodeName")
_POD_FORBIDDEN = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def check_micro_time(resource: Resource, text: t.Any) -> None:
    """Refusal 400 for a time that does not carry exactly six digits of a second."""
    if text is not None and (not isinstance(text, str) or not _MICRO_TIME.match(text)):
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise _cannot(resource, f'parsing time "{text}" as "{layout}": cannot parse "{str(text)[19:]}" as ".000000"')


def check_lease(resource: Resource, lease: Json) -> None:
    """Times must carry exactly six digits of a second; the duration must be above zero."""
    spec = lease.get("spec") or {}
    for key in ("renewTime", "acquireTime"):
        check_micro_time(resource, spec.get(key))
    causes = []
    for key, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise _cannot(resource, f"json: cannot unmarshal into Go struct field LeaseSpec.spec.{key} of type int32")
        if value is not None and value < least:
            told = "must be greater than 0" if least else "must be greater than or equal to 0"
            causes.append(cause("FieldValueInvalid", f"Invalid value: {value}: {told}", f"spec.{key}"))
    if causes:
        raise invalid(resource, lease["metadata"]["name"], causes)


def check_data(resource: Resource, obj: Json, encoded: tuple[str, ...]) -> None:
    """ConfigMap and Secret: values are strings (``encoded`` ones base64), keys are plain, the whole is at most 1 MiB."""
    size = 0
    causes = []
    for field in ("data", "binaryData"):
        for key, value in (obj.get(field) or {}).items():
            if not isinstance(value, str):
                kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "object"
                raise bad_request(
                    f'{resource.kind} in version "v1" cannot be handled as a {resource.kind}: json: cannot unmarshal {kind} into Go '
                    f"struct field {resource.kind}.{field} of type string"
                )
            if field in encoded:
                try:
                    size += len(base64.b64decode(value, validate=True))
                except binascii.Error:
                    told = f'{resource.kind} in version "v1" cannot be handled as a {resource.kind}: illegal base64 data at input byte 0'
                    raise bad_request(told) from None
            else:
                size += len(value.encode())
            if not _DATA_KEY.match(key):
                told = f'Invalid value: "{key}": {_DATA_KEY_RULE}'
                causes.append(cause("FieldValueInvalid", told, f"{field}[{key}]"))
    if size > _LIMIT:
        causes.append(cause("FieldValueTooLong", f"Too long: may not be more than {_LIMIT} bytes", "[]"))
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def check_immutable(resource: Resource, old: Json | None, new: Json) -> None:
    """``immutable: true`` closes data for ever; the type of a Secret never changes."""
    if old is None:
        return
    causes = []
    if old.get("immutable") and any(old.get(key) != new.get(key) for key in ("data", "binaryData", "immutable")):
        causes.append(cause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", "data"))
    if old.get("type") != new.get("type"):
        causes.append(cause("FieldValueInvalid", f'Invalid value: "{new.get("type")}": field is immutable', "type"))
    if causes:
        raise invalid(resource, new["metadata"]["name"], causes)


def _cannot(resource: Resource, why: str) -> Refusal:
    return bad_request(f'{resource.kind} in version "v1" cannot be handled as a {resource.kind}: {why}')


def check_times(resource: Resource, conditions: t.Iterable[Json], keys: tuple[str, ...]) -> None:
    """Refusal 400 for a time that is none."""
    for condition in conditions:
        for key in keys:
            text = condition.get(key)
            try:
                if text is not None and moment(text).tzinfo is None:
                    raise ValueError("no time zone")
            except (ValueError, AttributeError):
                layout = "2006-01-02T15:04:05Z07:00"
                raise _cannot(resource, f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"') from None


def check_amounts(resource: Resource, *amounts: Json | None) -> None:
    """Refusal 400 for a quantity that is none."""
    for values in amounts:
        for value in (values or {}).values():
            try:
                quantity(value)
            except ValueError:
                rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                raise _cannot(resource, rule) from None


def _check_affinity(spec: Json) -> t.Iterator[Json]:
    """Operators of node affinity that do not exist."""
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(path.rpartition(".")[2]) or {}
    for at, term in enumerate(required.get("nodeSelectorTerms") or []):
        for number, rule in enumerate(term.get("matchExpressions") or []):
            try:
                requirement(rule.get("key", ""), rule.get("operator", ""), rule.get("values") or [])
            except ValueError as error:
                field = f"{path}.nodeSelectorTerms[{at}].matchExpressions[{number}].operator"
                yield cause("FieldValueInvalid", f'Invalid value: "{rule.get("operator", "")}": {error}', field)


def check_selector(resource: Resource, name: str, selector: Json | None) -> None:
    """Refusal 422 for a LabelSelector with an operator that does not exist."""
    for at, rule in enumerate((selector or {}).get("matchExpressions") or []):
        if rule.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
            told = f'Invalid value: "{rule.get("operator", "")}": not a valid selector operator'
            raise invalid(resource, name, [cause("FieldValueInvalid", told, f"spec.selector.matchExpressions[{at}].operator")])


def check_pod(resource: Resource, old: Json | None, new: Json) -> None:
    name = new["metadata"]["name"]
    spec = new.get("spec") or {}
    causes = []
    if not spec.get("containers"):
        causes.append(cause("FieldValueRequired", "Required value", "spec.containers"))
    for at, container in enumerate(spec.get("containers") or []):
        for field in ("name", "image"):
            if not container.get(field):
                causes.append(cause("FieldValueRequired", "Required value", f"spec.containers[{at}].{field}"))
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        amounts = container.get("resources") or {}
        check_amounts(resource, amounts.get("limits"), amounts.get("requests"))
    causes += _check_affinity(spec)
    if not causes and old is not None and _fixed(old["spec"]) != _fixed(spec):
        causes.append(cause("FieldValueForbidden", _POD_FORBIDDEN, "spec"))
    if causes:
        raise invalid(resource, name, causes)


def _fixed(spec: Json) -> Json:
    """The part of a pod's spec that cannot change."""
    rest = {key: value for key, value in spec.items() if key not in _POD_MUTABLE}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{key: value for key, value in item.items() if key != "image"} for item in rest[field]]
    return rest
