# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request, taken apart."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from urllib.parse import parse_qs

import yaml

from . import protobuf
from .auth import Call, Identity
from .render import Form
from .resources import Registry, Resource
from .status import Refusal, bad_option, bad_request, no_such_path

Json = dict[str, t.Any]

_NAMESPACE_PARTS = ("status", "finalize")


@dataclasses.dataclass
class Request:
    """``lost`` tells whether the client has gone away."""

    method: str
    path: str
    query: dict[str, str]
    media: str
    accept: str
    agent: str
    host: str
    body: bytes
    lost: t.Callable[[], bool]

    @classmethod
    def of(cls, environ: t.Mapping[str, t.Any]) -> Request:
        query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True).items()}
        chunked = environ.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read() if chunked else environ["wsgi.input"].read(length) if length else b""
        return cls(
            environ["REQUEST_METHOD"], environ.get("PATH_INFO", "/"), query, environ.get("CONTENT_TYPE", "").split(";")[0].strip(),
            environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_USER_AGENT", ""), environ.get("HTTP_HOST", "localhost"), body,
            environ.get("kube.lost", _never),
        )  # fmt: skip

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("1", "true")

    def number(self, name: str) -> int | None:
        text = self.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    @property
    def form(self) -> Form:
        return Form(self.accept)

    def document(self) -> t.Any:
        """The body as data. Empty = None."""
        if not self.body.strip():
            return None
        if self.media == "application/vnd.kubernetes.protobuf":
            try:
                return protobuf.decode(self.body)
            except protobuf.Unreadable as problem:
                message = f"this emulator reads JSON and YAML, protobuf only of some kinds: {problem} (kubectl apply -f sends JSON)"
                raise Refusal(415, "UnsupportedMediaType", message, {}) from None
        try:
            return json.loads(self.body)
        except ValueError as error:
            if "yaml" not in self.media:
                raise bad_request(f"error decoding the body: {error}") from None
        try:
            return yaml.safe_load(self.body)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from None

    def call(self, identity: Identity) -> Call:
        dry = self.query.get("dryRun", "")
        if dry not in ("", "All"):
            options = {"DELETE": "DeleteOptions", "POST": "CreateOptions", "PUT": "UpdateOptions"}.get(self.method, "PatchOptions")
            raise bad_option(options, "dryRun", "FieldValueNotSupported", f'Unsupported value: ["{dry}"]: supported values: "All"')
        manager = self.query.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        return Call(identity, manager, dry == "All", self.query.get("fieldValidation") == "Strict")


def _never() -> bool:
    return False


class Target(t.NamedTuple):
    """What a path names. No name = the collection."""

    resource: Resource
    namespace: str | None
    name: str
    sub: str


def target(registry: Registry, path: str) -> Target:
    """Refusal 404 for a path that nothing serves."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS and not group):
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = (*rest, "", "")[:3]
    resource = registry.find(group, version, plural)
    if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
        raise no_such_path()
    if name and resource.namespaced and namespace is None:
        raise no_such_path()
    if sub and sub not in ((("status",) if resource.status else ()) + resource.subresources):
        raise no_such_path()
    return Target(resource, namespace, name, sub)
