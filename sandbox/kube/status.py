# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals in the words of the real API server: an HTTP status and a ``Status`` body."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from .resources import Resource

Json = dict[str, t.Any]


def cause(reason: str, message: str, field: str | None = None) -> Json:
    """One entry of ``details.causes``."""
    entry = {"reason": reason, "message": message}
    return entry if field is None else {**entry, "field": field}


class Refusal(Exception):
    """The request is refused with ``body``, a Status document."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details
        self.body["code"] = code


def _details(resource: Resource, name: str, kind: str | None = None) -> Json:
    details: Json = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def success(code: int = 200, details: Json | None = None) -> Json:
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": details} if details else {**body, "code": code}


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: list[Json] | None = None) -> Refusal:
    quoted = f'{resource.qualified} "{name}"' if name else resource.qualified
    details = _details(resource, name)
    if causes:
        details["causes"] = causes
    return Refusal(403, "Forbidden", f"{quoted} is forbidden: {why}", details)


def not_found(resource: Resource, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> Refusal:
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(resource: Resource, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return Refusal(409, "Conflict", message, _details(resource, name))


def unmet(resource: Resource, name: str, why: str) -> Refusal:
    """The precondition of a deletion does not hold. Here the real server names the kind, not the resource."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return Refusal(
        409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', _details(resource, name, resource.kind)
    )


def modified(resource: Resource, name: str) -> Refusal:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def no_version(resource: Resource, name: str) -> Refusal:
    """422: an update that must name the version it changes does not."""
    field, message = "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
    details = {**_details(resource, name), "causes": [cause("FieldValueInvalid", message, field)]}
    return Refusal(422, "Invalid", f'{resource.qualified} "{name}" is invalid: {field}: {message}', details)


def bad_option(options: str, field: str, reason: str, message: str) -> Refusal:
    """422 for a query parameter; ``options`` is DeleteOptions, PatchOptions and the like."""
    details = {"group": "meta.k8s.io", "kind": options, "causes": [cause(reason, message, field)]}
    return Refusal(422, "Invalid", f'{options}.meta.k8s.io "" is invalid: {field}: {message}', details)


def unsupported_media() -> Refusal:
    return Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(resource: Resource, name: str, causes: list[Json]) -> Refusal:
    """422; ``causes`` from :func:`cause`, each with a field."""
    told = [f"{entry['field']}: {entry['message']}" for entry in causes]
    text = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {**_details(resource, name, resource.kind), "causes": causes}
    return Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)
