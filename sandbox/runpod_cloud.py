# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's REST API v2 over the sandbox's world, as its documents and clients of 2026 describe it; pods are containers.

The key is ``world.secrets["RUNPOD_API_KEY"]`` (made up when absent). REST v1 answers 410: it is retired. What RunPod does not document and
we chose: unknown query parameters are ignored, a log stream ends with the last line there is, a crash loop waits ten seconds between two
starts.
"""

from __future__ import annotations

import typing as t

import flask
from werkzeug.exceptions import HTTPException

from . import runpod_catalog, runpod_clusters, runpod_graphql, runpod_more, runpod_pods, runpod_templates
from .runpod_account import Account, Problem, check_key
from .runpod_stock import SCENARIO_KEYS, runpod_offer
from .world import World
from .wsgi import Service

__all__ = ["SCENARIO_KEYS", "app", "runpod_offer"]
_PUBLIC = ("/v2/openapi.json",)


def app(world: World) -> flask.Flask:
    """The WSGI application; ``/v2`` is part of its paths."""
    account = Account.of(world)
    with world.lock:
        world.secrets.setdefault("RUNPOD_API_KEY", f"rpa_SANDBOX{world.random.getrandbits(160):040X}")
    service = Service("runpod")
    service.json.sort_keys = False  # type: ignore[attr-defined]

    @service.errorhandler(Problem)
    def refuse(problem: Problem) -> t.Any:
        answer = flask.make_response(flask.json.dumps(problem.body), problem.status, problem.headers)
        answer.content_type = "application/problem+json"
        return answer

    @service.errorhandler(HTTPException)
    def unknown(error: HTTPException) -> t.Any:
        words = {404: "no such resource", 405: "method not allowed"}
        problem = Problem(error.code or 500, words.get(error.code or 500, error.description or "internal error"))
        if error.code == 405 and getattr(error, "valid_methods", None):
            problem.headers["Allow"] = ", ".join(error.valid_methods)  # type: ignore[attr-defined]
        return refuse(problem)

    @service.before_request
    def guard() -> None:
        path = flask.request.path
        if path == "/v1" or path.startswith("/v1/"):
            raise Problem(410, "this API is retired; use the REST API v2")
        if path.startswith("/v2/") and path not in _PUBLIC:
            check_key(world, flask.request.headers.get("Authorization", ""), flask.request.method)
            account.admit(world)
        if path not in _PUBLIC:
            runpod_pods.settle(world, account)

    @service.after_request
    def limits(answer: flask.Response) -> flask.Response:
        if flask.request.path.startswith("/v2/"):
            answer.headers.update(account.windows.headers(world.clock.seconds()))
        return answer

    runpod_catalog.routes(service, world, account)
    runpod_pods.routes(service, world, account)
    runpod_graphql.routes(service, world, account)
    runpod_clusters.routes(service, world, account)
    runpod_templates.routes(service, world, account)
    runpod_more.routes(service, world, account)
    return service
