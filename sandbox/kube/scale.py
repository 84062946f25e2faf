# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subresource scale of custom resources: a number of the spec, read and written as autoscaling/v1."""

from __future__ import annotations

import typing as t

from .resources import Resource
from .status import Refusal, cause, invalid, modified

Json = dict[str, t.Any]


def _at(obj: Json, path: str) -> t.Any:
    value: t.Any = obj
    for step in path.strip(".").split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def scale(resource: Resource, obj: Json) -> Json:
    """The Scale of an object. A spec without a number has none to read, but one can be written."""
    wanted, seen = resource.scale
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
                if key in obj["metadata"]}  # fmt: skip
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": _at(obj, wanted) or 0},
        "status": {"replicas": _at(obj, seen) or 0},
    }


def read(resource: Resource, obj: Json) -> Json:
    wanted = resource.scale[0]
    if _at(obj, wanted) is None:
        told = f'Internal error occurred: the spec replicas field "{wanted}" does not exist'
        raise Refusal(500, "InternalError", told, {"causes": [{"message": told.partition(": ")[2]}]})
    return scale(resource, obj)


def scaled(resource: Resource, obj: Json, new: Json) -> Json:
    """The object with the number of a new Scale."""
    version, name = (new.get("metadata") or {}).get("resourceVersion"), obj["metadata"]["name"]
    if version and version != obj["metadata"]["resourceVersion"]:
        raise modified(resource, name)
    number = (new.get("spec") or {}).get("replicas", 0)
    if number < 0:
        kind = Resource("autoscaling", "v1", "scales", "Scale", True)
        told = f"Invalid value: {number}: must be greater than or equal to 0"
        raise invalid(kind, name, [cause("FieldValueInvalid", told, "spec.replicas")])
    *way, last = resource.scale[0].strip(".").split(".")
    result = {**obj}
    place = result
    for step in way:
        place[step] = {**(place.get(step) or {})}
        place = place[step]
    place[last] = number
    return result
