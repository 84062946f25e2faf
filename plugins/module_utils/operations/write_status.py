# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the status of the objects whose documents a run has read: at most once per object and run, and only what has changed."""

from __future__ import annotations

import typing as t

from ..core.errors import ApiError, Conflict, Forbidden, NotFound
from ..model import Observation, Plan, StatusObject
from ..observe.context import Context
from ..planner.object_status import World, change, statuses
from ..providers.registry import CAPABILITIES


def write_statuses(context: Context, seen: Observation, decided: Plan) -> list[str]:
    """What could not be written, as sentences; the run goes on all the same."""
    problems: list[str] = []
    refused: set[str] = set()  # kinds: a right that is missing for one object is missing for all
    for one, status in statuses(World(seen, context.specs, decided, context.settings, CAPABILITIES)):
        patch = change(one.status, status, seen.now)
        if patch is None or one.kind in refused:
            continue
        context.lock.renew_if_due()
        try:
            _write(context, one, status, patch)
        except NotFound:
            continue  # it was deleted meanwhile
        except Conflict:
            continue  # another client keeps changing it; the next run tries again
        except Forbidden as error:
            refused.add(one.kind)
            problems.append(f"The status of {one.kind} objects cannot be written: {error}")
        except ApiError as error:
            problems.append(f"The status of {one.place} cannot be written: {error}")
    return problems


def _write(context: Context, one: StatusObject, status: t.Mapping[str, t.Any], patch: dict[str, t.Any]) -> None:
    """With one more try when the object has changed since it was read."""
    try:
        _patch(context, one, one.version, patch)
    except Conflict:
        found = context.kube.get(one.path)
        again = change(found.get("status") or {}, status, context.clock.now())
        if again is not None and found["metadata"].get("uid") == one.uid:
            _patch(context, one, found["metadata"]["resourceVersion"], again)


def _patch(context: Context, one: StatusObject, version: str, patch: dict[str, t.Any]) -> None:
    context.kube.patch(f"{one.path}/status", {"metadata": {"resourceVersion": version}, "status": patch})
