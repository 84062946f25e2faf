# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_validate: every check that can be made without changing anything, and all its findings at once."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..errors import InvalidInput, TgpError
from ..observe.cluster_facts import cluster_facts
from ..observe.context import Context
from ..observe.open import open_context
from ..table import render
from ..task import Task
from .preflight import check_clock, check_mesh, check_rights, template_faults

_COLUMNS = {"mark": "", "what": "check", "message": "finding"}


def validate(task: Task) -> dict[str, t.Any]:
    """The result of fleet_validate. InvalidInput lists everything that is wrong; the documents come first and end it at once."""
    context = open_context(task)
    try:
        checks = _checks(context)
    finally:
        context.close()
    rows = [{**one, "mark": "ok" if one["ok"] else "NO"} for one in checks]
    for line in render(rows, _COLUMNS):
        task.progress(line)
    wrong = [f"{one['what']}: {one['message']}" for one in checks if not one["ok"]]
    if wrong:
        error = InvalidInput("The set-up is not complete:", problems=wrong)
        error.result = {"checks": checks}  # type: ignore[attr-defined]
        raise error
    return {"changed": False, "checks": checks}


def _checks(context: Context) -> list[dict[str, t.Any]]:
    classes = list(context.wishes.classes.values())
    named = sorted({one.cloud for node_class in classes for one in node_class.clouds if one.enabled})
    tasks: list[tuple[str, t.Callable[[], str]]] = [
        ("documents", lambda: f"{len(classes)} classes, {len(context.wishes.pools)} pools"),
        ("cluster", lambda: f"{context.kube.source}, id {context.cluster_id}, version {context.kube.get('/version')['gitVersion']}"),
        ("rights", lambda: check_rights(context)),
        ("clock", lambda: check_clock(context)),
        ("Talos secrets", lambda: f"endpoint {cluster_facts(context).endpoint}, kubelet {cluster_facts(context).kubernetes_version}"),
        ("mesh", lambda: check_mesh(context, classes)),
    ]
    tasks += [(f"template of {one.name}", _template_check(context, one)) for one in classes]
    tasks += [(f"cloud {name}", _cloud_check(context, name)) for name in named]
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="check") as pool:
        return list(pool.map(lambda pair: _one(*pair), tasks))


def _one(what: str, check: t.Callable[[], str]) -> dict[str, t.Any]:
    try:
        return {"what": what, "ok": True, "message": check()}
    except TgpError as error:
        return {"what": what, "ok": False, "message": str(error)}


def _template_check(context: Context, node_class: t.Any) -> t.Callable[[], str]:
    def check() -> str:
        faults = template_faults(context, node_class)
        if faults:
            raise InvalidInput("A machine with this template would not join:", problems=faults)
        return "renders to a configuration that Talos accepts"

    return check


def _cloud_check(context: Context, name: str) -> t.Callable[[], str]:
    def check() -> str:
        found = context.cloud(name).check()
        return " ".join((found.sentence, *found.warnings))

    return check
