# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes API as raw JSON: eight verbs over paths, strict about shapes, with errors that name the missing right.

No client library: 10,000 pods as typed objects cost seconds and half a gigabyte, as raw pages that are reduced one by one next to
nothing.
"""

from __future__ import annotations

import base64
import binascii
import builtins
import email.utils
import math
import threading
import typing as t
from datetime import datetime, timezone

from ..core.errors import ApiError, Conflict, Forbidden, InvalidInput, NotFound, TgpError
from ..core.http import Answer, Api, code_and_message
from ..core.rate_limit import RetryPolicy
from ..core.redact import redact_all, register
from ..model.labels import MANAGED_BY_LABEL
from ..model.names import CLUSTER_ID
from . import rbac
from .informer import Expired, Follow, Listener, Watch

T = t.TypeVar("T")
Json = dict[str, t.Any]
Teller = t.Callable[[str, str, t.Callable[[], t.Any]], t.Any]
_PATCH = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
# Of a write that an API server under load turns away. Callers retry with jitter, and never before the Retry-After.
_TURNED_AWAY = RetryPolicy(
    tries=4, first=1.0, growth=1.0, jitter=(1.0, 1.5), deadline=math.inf, retry_after=(1.0, 30.0), retry_after_jitter=(1.0, 1.5)
)
_TERMINATING = "create not allowed while custom resource definition is terminating"
_RESTARTS = 5  # listings begun anew because the server forgot the snapshot


def causes_of(error: ApiError) -> list[dict[str, t.Any]]:
    """``details.causes`` of a Status: dicts with ``field`` and ``message``, of an invalid object or of fields that another manager owns."""
    body = error.body if isinstance(error.body, dict) else {}
    return list((body.get("details") or {}).get("causes") or ())


def explain(body: t.Any, text: str) -> tuple[str | None, str]:
    """Reason and message of a ``Status`` object."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        return body.get("reason"), str(body.get("message") or "").rstrip(".")
    return code_and_message(body, text)


def by_server(error: NotFound) -> bool:
    """True for a "not found" of the API server itself; a page of a proxy or load balancer in between proves nothing."""
    return isinstance(error.body, dict) and error.body.get("kind") == "Status"


def _denied(body: t.Any) -> bool:
    """True for a refusal of something that the right is there for: by admission, or because the kind is being removed."""
    message = str(body.get("message") or "") if isinstance(body, dict) else ""
    return message.startswith("admission webhook ") or "ValidatingAdmissionPolicy" in message or message.endswith(_TERMINATING)


class Follows:
    """The collections of one cluster that are followed right now, by name; each is followed once, however many look at it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[str, Follow[t.Any]] = {}

    def open(self, name: str, make: t.Callable[[], Follow[T]], listener: Listener) -> t.Callable[[], None]:
        """Listen to the collection ``name``, made by ``make`` if nobody follows it yet. Returns what ends the listening."""
        with self._mutex:
            follow = self._open.get(name)
            if follow is None:
                follow = self._open[name] = make()
            follow.add(listener)

        def close() -> None:
            with self._mutex:
                if follow.remove(listener) and self._open.get(name) is follow:
                    del self._open[name]

        return close

    def count(self, prefix: str) -> int:
        """How many whose name begins so are open."""
        with self._mutex:
            return sum(name.startswith(prefix) for name in self._open)


class Kube:
    """One cluster. Paths are those of the API (``/api/v1/nodes/x``), answers plain dicts.

    ``source`` says which context of which file this is. ``teller`` is called with method, path and a function that sends the call, for
    each that may delete something: it sends it and tells of it. Reads are retried by ``http.Api``; writes are sent once unless the caller
    says ``idempotent``, or the server has turned them away (429). Safe to use from several threads.
    """

    def __init__(self, api: Api, source: str = "") -> None:
        self.api = api
        self.source = source or api.base_url
        self.clock = api.clock
        self.follows = Follows()
        self._identity: str | None = None
        self.teller: Teller | None = None
        self.needs: tuple[
            rbac.Right, ...
        ] = ()  # all that the caller is going to do: the first refusal names all of it that is missing

    def close(self) -> None:
        self.api.close()

    # ---- one object

    def get(self, path: str, params: t.Mapping[str, t.Any] | None = None) -> Json:
        """One object. NotFound when it does not exist."""
        return self._object("GET", path, params=params)

    def find(self, path: str, params: t.Mapping[str, t.Any] | None = None) -> Json | None:
        """One object, or None when the API server says that it does not exist."""
        try:
            return self.get(path, params)
        except NotFound as error:
            self._refuse_foreign(error, f"GET {path}")
            return None

    def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        """POST to a collection. Conflict when the name exists."""
        return self._object("POST", path, params=_dry(dry_run), json=body)

    def patch(self, path: str, body: t.Any, *, kind: str = "merge", dry_run: bool = False, idempotent: bool | None = None) -> Json:
        """PATCH; ``kind`` is merge, strategic or json. A merge patch gives the same end however often it is sent, so it is retried
        unless it carries a resourceVersion (then a repetition would meet its own effect)."""
        if idempotent is None:
            guarded = isinstance(body, dict) and "resourceVersion" in (body.get("metadata") or {})
            idempotent = kind == "merge" and not guarded
        headers = {"content-type": _PATCH[kind]}
        return self._object("PATCH", path, params=_dry(dry_run), json=body, headers=headers, idempotent=idempotent)

    def apply(self, path: str, body: Json, manager: str, *, force: bool = False, dry_run: bool = False) -> Json:
        """Server-side apply as a field manager: creates the object, or changes the fields that ``body`` has. Conflict when another manager
        owns one of them with another value; ``force`` takes it over."""
        params = {"fieldManager": manager, **({"force": "true"} if force else {}), **(_dry(dry_run) or {})}
        headers = {"content-type": "application/apply-patch+yaml"}
        return self._object("PATCH", path, params=params, json=body, headers=headers, idempotent=True)

    def replace(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        """PUT; with ``metadata.resourceVersion`` a Conflict says that another client was faster."""
        return self._object("PUT", path, params=_dry(dry_run), json=body)

    def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        dry_run: bool = False,
    ) -> bool:
        """DELETE. False when it did not exist (any more); Conflict when it is not the object with that uid or version."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        if preconditions:
            options["preconditions"] = preconditions
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.call("DELETE", path, params=_dry(dry_run), json=options, idempotent=bool(uid))
        except NotFound as error:
            self._refuse_foreign(error, f"DELETE {path}")
            return False
        return True

    def _refuse_foreign(self, error: NotFound, operation: str) -> None:
        if not by_server(error):
            raise self.api.bad_shape(operation, f"it was answered {error.status}, not by the API server") from error

    def _object(self, method: str, path: str, **options: t.Any) -> Json:
        answer = self.call(method, path, **options)
        return self.api.expect(answer.json, dict, f"{method} {path}")

    def call(self, method: str, path: str, *, watch: bool = False, **options: t.Any) -> Answer:
        """Any request; Forbidden names the right that is missing."""
        if self.teller is not None and method in ("DELETE", "POST") and "dryRun" not in (options.get("params") or {}):
            return t.cast(Answer, self.teller(method, path, lambda: self._call(method, path, watch, options)))
        return self._call(method, path, watch, options)

    def _call(self, method: str, path: str, watch: bool, options: Json) -> Answer:
        # What may be repeated is resent by the policy of reads. A 429 to an eviction is its answer: a PodDisruptionBudget forbids it.
        sent_once = method != "GET" and not options.get("idempotent") and not path.endswith("/eviction")
        try:
            return self.api.call(method, path, resend_rate_limited=_TURNED_AWAY if sent_once else None, **options)
        except Forbidden as error:
            raise self.forbidden(error, method, path, watch=watch) from error

    def forbidden(self, error: Forbidden, method: str, path: str, *, watch: bool = False) -> Forbidden:
        """The same refusal with the right in words. A refusal for another reason than rights is left as it is."""
        needed = rbac.of_call(method, path, watch=watch)
        causes = causes_of(error)
        if needed is None or causes or _denied(error.body):
            return error
        quote = f"The server said: {explain(error.body, '')[1] or 'nothing'}."
        wanted, self.needs = self.needs, ()
        others = self._also_missing(wanted, needed)
        more = f" Missing as well: {', '.join(others)}." if others else ""
        return Forbidden(
            f"kubernetes: {self.source} is not allowed to {needed}.{more}",
            remedy=f"{rbac.how_to_grant()} {quote}" if wanted else f"Grant it by a {needed.rule}. {quote}",
            service="kubernetes",
            status=403,
            code=error.code,
            body=redact_all(error.body),
            verb=needed.verb,
            resource=needed.resource,
            namespace=needed.namespace or None,
        )

    def missing_rights(self, needed: t.Iterable[rbac.Right]) -> builtins.list[str]:
        """One sentence per right we do not have, by asking the API server itself. Empty = all is well."""
        return [f"{self.source}: not allowed to {right}. Grant it: {right.rule}." for right in rbac.missing(needed, self._has)]

    def _also_missing(self, needed: t.Iterable[rbac.Right], refused: rbac.Right) -> builtins.list[str]:
        """The other rights of ``needed`` that we do not have, where the server says so; it was asked because ``refused`` is missing."""
        try:
            return [str(right) for right in rbac.missing(needed, self._has) if not right.covers(refused)]
        except TgpError:  # who may not even ask that learns of the one right at least
            return []

    def _has(self, right: rbac.Right) -> bool:
        status = self.create(rbac.REVIEWS, rbac.review(right)).get("status")
        if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
            raise self.api.bad_shape(f"POST {rbac.REVIEWS}", "status.allowed is missing")
        return bool(status["allowed"])

    # ---- many objects

    def collect(
        self,
        path: str,
        reduce: t.Callable[[Json], T | None],
        params: t.Mapping[str, t.Any] | None = None,
        *,
        limit: int = 500,
    ) -> tuple[builtins.list[T], str]:
        """Read a whole collection page by page; ``reduce`` turns each raw item into what is kept (None = dropped).

        Returns the kept items and the collection's resourceVersion. Begins anew when the server forgot the snapshot between pages,
        so the result is always one consistent view.
        """
        for _attempt in range(_RESTARTS):
            kept: builtins.list[T] = []
            version = ""
            try:
                for items, at in self._pages(path, params, limit):
                    version = at
                    for item in items:
                        value = reduce(item)
                        if value is not None:
                            kept.append(value)
                return kept, version
            except Expired as error:
                last = error
        raise last

    def list(self, path: str, params: t.Mapping[str, t.Any] | None = None, *, limit: int = 500) -> builtins.list[Json]:
        """All raw items of a collection."""
        return self.collect(path, lambda item: item, params, limit=limit)[0]

    def pages(self, path: str, params: t.Mapping[str, t.Any] | None = None, limit: int = 500) -> t.Iterator[Json]:
        """All raw items, one at a time, a page in memory at once. When the server forgets the snapshot in between, the listing
        begins anew and items that were handed out already are left out; use :meth:`collect` where one moment in time matters."""
        given: set[str] = set()
        for attempt in range(_RESTARTS):
            try:
                for items, _version in self._pages(path, params, limit):
                    for item in items:
                        uid = str(item["metadata"].get("uid") or item["metadata"].get("name"))
                        if uid not in given:
                            given.add(uid)
                            yield item
                return
            except Expired:
                if attempt == _RESTARTS - 1:
                    raise

    def _pages(self, path: str, params: t.Mapping[str, t.Any] | None, limit: int) -> t.Iterator[tuple[builtins.list[Json], str]]:
        query: Json = {**(params or {}), "limit": limit}
        operation = f"GET {path}"
        expect = self.api.expect
        while True:
            try:
                body = self.get(path, query)
            except NotFound as error:
                if error.status == 410:
                    raise Expired(error.message, service="kubernetes", status=410, code=error.code) from error
                raise
            if not str(body.get("kind") or "").endswith("List"):
                raise self.api.bad_shape(operation, f"its kind is {body.get('kind')!r}, not a list")
            items = expect(body.get("items"), builtins.list, operation, "items")
            metadata = expect(body.get("metadata"), dict, operation, "metadata")
            for item in items:
                expect(expect(item, dict, operation, "an item").get("metadata"), dict, operation, "an item's metadata")
            yield items, str(metadata.get("resourceVersion") or "")
            token = metadata.get("continue")
            if not token:
                return
            query["continue"] = expect(token, str, operation, "metadata.continue")

    def watch(self, path: str, params: t.Mapping[str, t.Any] | None = None, *, silence: float = 60.0) -> Watch:
        """Open a watch; iterate it for (type, object). ``silence`` is the longest pause between two lines, in real seconds."""
        return Watch(self.api, path, params, silence, lambda error: self.forbidden(error, "GET", path, watch=True))

    # ---- time

    def server_time(self) -> datetime:
        """The API server's clock, by the Date header of an answer (whole seconds)."""
        answer = self.call("GET", "/version")
        try:
            moment = email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
        except (TypeError, ValueError):
            raise self.api.bad_shape("GET /version", "it has no Date header") from None
        return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)

    def skew(self) -> float:
        """Seconds by which the API server's clock is ahead of ours."""
        return (self.server_time() - self.clock.now()).total_seconds()

    # ---- identity

    def cluster_id(self) -> str:
        """The first 8 hex digits of the UID of the namespace kube-system (L-1); read once."""
        if self._identity is None:
            path = "/api/v1/namespaces/kube-system"
            uid = str((self.get(path).get("metadata") or {}).get("uid") or "")
            digits = uid.replace("-", "")[:8].lower()
            if len(digits) != 8 or any(letter not in "0123456789abcdef" for letter in digits):
                raise InvalidInput(
                    f"The UID {uid!r} of namespace kube-system gives no cluster id.",
                    remedy="Set the option cluster_id to 8 lower-case hex digits.",
                )
            self._identity = digits
        return self._identity


def _dry(dry_run: bool) -> dict[str, str] | None:
    return {"dryRun": "All"} if dry_run else None


# ---- the namespace that holds our records

NAMESPACE = "tgp-system"


def ensure_namespace(kube: Kube, name: str = NAMESPACE) -> bool:
    """Make sure the namespace exists; returns whether it was created now."""
    path = f"/api/v1/namespaces/{name}"
    try:
        if kube.find(path) is not None:
            return False
    except Forbidden:
        pass  # a user with rights only inside it cannot read it; creating it tells
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: "tgp.gpu"}},
    }
    try:
        kube.create("/api/v1/namespaces", body)
    except Conflict:
        return False
    return True


# ---- the cluster id that is part of every name (L-1)


def cluster_id(kube: Kube | None, option: str | None = None) -> str:
    """The option if it is set (8 lower-case hex digits), else the first 8 of the UID of namespace kube-system."""
    if option:
        if not CLUSTER_ID.fullmatch(option):
            raise InvalidInput(f"cluster_id {option!r} is not 8 lower-case hexadecimal digits.", remedy="For example a1b2c3d4.")
        return option
    if kube is None:
        raise InvalidInput("Without a cluster to ask, cluster_id must be set.", remedy="Set it to 8 lower-case hex digits.")
    return kube.cluster_id()


# ---- reads one key of a Kubernetes Secret


def read_secret(kube: Kube, namespace: str, name: str, key: str) -> str:
    """The text of ``key`` in Secret ``namespace/name``, registered for redaction. NotFound when Secret or key is missing."""
    data = secret_data(kube, namespace, name, key)
    register(str(data.get(key, "")))
    text = text_of(data, namespace, name, key)
    register(text)
    return text


def secret_data(kube: Kube, namespace: str, name: str, key: str) -> dict[str, t.Any]:
    """All keys of a Secret as the server has them, because of one of them. NotFound when there is no such Secret."""
    try:
        return t.cast("dict[str, t.Any]", kube.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").get("data") or {})
    except NotFound as error:
        raise NotFound(
            f"The Secret {namespace}/{name} does not exist.",
            remedy=f"Create it with the key {key}, or correct the reference.",
            service="kubernetes",
            status=404,
        ) from error


def text_of(data: t.Mapping[str, t.Any], namespace: str, name: str, key: str) -> str:
    """The text of a key of :func:`secret_data`. NotFound when it is missing; InvalidInput, without the value, when it is none."""
    if key not in data:
        raise NotFound(
            f"The Secret {namespace}/{name} has no key {key}.",
            remedy=f"Keys there: {', '.join(sorted(data)) or 'none'}.",
            service="kubernetes",
            status=404,
        )
    try:
        text = base64.b64decode(data[key], validate=True).decode("utf-8").strip()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise InvalidInput(f"The Secret {namespace}/{name}: the value of {key} is not text.") from None
    if not text:
        raise InvalidInput(f"The Secret {namespace}/{name}: the value of {key} is empty.")
    return text
