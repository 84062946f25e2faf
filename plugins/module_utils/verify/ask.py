# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a service the questions of its table and records the answers. All of it is read-only; calls go through the service's own client, so they
keep its pace and its retries."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ..core import errors
from ..core.http import Answer, Api
from ..core.task import Task
from ..mesh import connect as mesh
from ..mesh.headscale import Headscale
from ..mesh.tailscale.client import Tailscale
from ..mesh.tailscale.session import Session
from ..providers.base import Cloud
from ..providers.registry import canonical_cloud, connect
from ..talos.images.factory import ImageFactory, open_factory
from .facts import gcp, image_factory, lambda_cloud, paperspace, runpod, vast, vultr
from .facts.fact import Question, Replies, Reply, Table
from .facts.mesh import HEADSCALE, TAILSCALE

CLOUDS: dict[str, Table] = {
    table.service: table for table in (gcp.TABLE, lambda_cloud.TABLE, paperspace.TABLE, runpod.TABLE, vast.TABLE, vultr.TABLE)
}
MESHES = {"tailscale": TAILSCALE, "headscale": HEADSCALE}
FACTORY = "image_factory"
OWN = "webhook"
SERVICES = (*CLOUDS, OWN, *MESHES, FACTORY)
INVALID_KEY = "tgp-verify-provider-invalid-key"
INVALID = {"authorization": f"Bearer {INVALID_KEY}"}
ANSWERS = frozenset(range(300, 500)) - {429}


class CloudWithConnection(Cloud, t.Protocol):
    @property
    def api(self) -> Api: ...


@dataclasses.dataclass
class VerifyTarget:
    """One service and its table. ``cloud`` is None where nothing can be rented."""

    table: Table
    api: Api
    cloud: Cloud | None = None
    session: Session | None = None
    closing: t.Callable[[], None] = lambda: None

    def call(self, question: Question, path: str, params: t.Mapping[str, t.Any]) -> Answer:
        """One call, paced and retried like the client's own reads. Raises ApiError for an answer that shows nothing (429, 5xx, none)."""
        options: dict[str, t.Any] = {
            "params": dict(params) or None,
            "json": question.json,
            "pace": question.pace,
            "ok": ANSWERS | set(question.also),
            "idempotent": True,
            "resend_rate_limited": self.api.retry,
        }
        if not question.credential:
            return self.api.call(question.method, path, headers=INVALID, **options)
        if self.session is not None:
            return self.session.call(question.method, path, scope="", **options)
        return self.api.call(question.method, path, **options)

    def close(self) -> None:
        self.closing()


def service_named(task: Task) -> str:
    """The service that the option names. InvalidInput for one that has no table."""
    name, option = task.params["provider"], task.called("provider")
    known = canonical_cloud(name) or name.strip().lower().replace("-", "_")
    if known in SERVICES:
        return known
    raise errors.InvalidInput(f"{option} must be one of {', '.join(SERVICES)}, got {name!r}.")


def open_target(task: Task, service: str) -> VerifyTarget:
    """The connection of this module call. Only for a mesh of one's own it asks which API the server speaks."""
    if service in CLOUDS:
        cloud = t.cast(CloudWithConnection, connect(service, task))
        return VerifyTarget(CLOUDS[service], cloud.api, cloud, closing=cloud.close)
    if service == FACTORY:
        factory: ImageFactory = open_factory(task)
        return VerifyTarget(image_factory.TABLE, factory.api, closing=factory.close)
    found = mesh.connect(task)
    client = found.decided() if isinstance(found, mesh.Undecided) else found
    if not isinstance(client, (Tailscale, Headscale)):
        raise errors.InvalidInput(f"{service}: this mesh has no facts to verify.")
    table = HEADSCALE if isinstance(client, Headscale) else TAILSCALE
    return VerifyTarget(table, client.session.api, session=client.session, closing=client.close)


@dataclasses.dataclass
class Recording:
    """``replies`` by the name of the question, ``failures`` of those without an answer: a kind and a status, never the text. ``unasked``:
    those that earlier answers left without a path."""

    replies: dict[str, Reply] = dataclasses.field(default_factory=dict)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    unasked: set[str] = dataclasses.field(default_factory=set)

    def add(self, name: str, ask: t.Callable[[], Answer]) -> Reply | None:
        try:
            reply = recorded(ask())
        except errors.ApiError as error:
            self.failures[name] = failure_of(error)
            return None
        self.replies[name] = reply
        return reply


def failure_of(error: errors.ApiError) -> str:
    """What kind of failure it was, without the service's own words."""
    return f"{error.kind}{f' (HTTP {error.status})' if error.status else ''}"


def recorded(answer: Answer) -> Reply:
    media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Reply(answer.status, answer.json, media, answer.headers, answer.text)


def ask_all(task: Task, target: VerifyTarget, recording: Recording) -> None:
    """Every question that is needed without a rented machine, in order. One that fails does not stop the others."""
    questions = target.table.asked(rented=False)
    for number, question in enumerate(questions, 1):
        path, params = filled(question, recording.replies)
        if path:
            task.progress(f"{target.table.service}: {number}/{len(questions)} {question.described()}")
            recording.add(question.name, functools.partial(target.call, question, path, params))
        else:
            recording.failures[question.name] = "an earlier answer names nothing to ask about"
            recording.unasked.add(question.name)


def filled(question: Question, replies: Replies) -> tuple[str, t.Mapping[str, t.Any]]:
    """Path and query, where they depend on earlier answers."""
    path = question.path if isinstance(question.path, str) else question.path(replies)
    return path, question.params(replies) if callable(question.params) else question.params
