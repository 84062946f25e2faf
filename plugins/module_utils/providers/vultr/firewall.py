# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall group of a cluster: no rule, so it lets nothing in. One for all machines of the cluster, removed when none is left."""

from __future__ import annotations

import collections
import contextlib
import threading
import typing as t

from ...core import errors
from ...model import Extra, LaunchRequest
from .api import Calls
from .records import GROUP, group_name, is_group, moment


class Firewall:
    """The groups of one account. Launches of one client share it, in threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._guard = threading.Lock()
        self._ids: dict[str, str] = {}
        self._unused: set[str] = set()  # made here, and no machine is known to have it
        self._launching: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def group_for(self, request: LaunchRequest) -> t.Iterator[str]:
        """The id of the group for a machine that is launched inside; empty = none. One that was made for it goes again when that is refused."""
        wanted, cluster = request.settings.get("firewallGroup", "own"), str(request.marks.get("cluster") or "")
        if wanted != "own" or not cluster:
            yield "" if wanted in ("none", "own") else wanted
            return
        with self._guard:
            identity = self._found_or_made(group_name(cluster))
            self._launching[identity] += 1
        try:
            yield identity
        except errors.LaunchRefused:
            self._end(identity, refused=True)
            raise
        except BaseException:
            self._end(identity, refused=False)
            raise
        self._end(identity, refused=False)

    def _end(self, identity: str, *, refused: bool) -> None:
        with self._guard:
            self._launching[identity] -= 1
            if not refused:
                self._unused.discard(identity)
            elif identity in self._unused and not self._launching[identity]:
                with contextlib.suppress(errors.ApiError):  # extras() goes on showing it, so the next clean-up finds it
                    self._delete(identity)

    def _found_or_made(self, name: str) -> str:
        """Looked up before it is made, and after a lost answer."""
        if name not in self._ids:
            identity = self._named(name)
            if not identity:
                try:
                    made = self._calls.made("/firewalls", {"description": name}, "firewall_group")
                    identity = self._calls.api.expect(made.get("id") or None, str, "POST /firewalls", "id")
                except (errors.LostAnswer, errors.ServerError, errors.BadShape):
                    identity = self._named(name)
                    if not identity:
                        raise
                self._unused.add(identity)
            self._ids[name] = identity
        return self._ids[name]

    def _named(self, name: str) -> str:
        return min((str(entry["id"]) for entry in self._groups() if entry.get("description") == name), default="")

    def _groups(self) -> list[dict[str, t.Any]]:
        operation, expect = "GET /firewalls", self._calls.api.expect
        groups = [expect(entry, dict, operation, "an entry") for entry in self._calls.pages("/firewalls", "firewall_groups")]
        for entry in groups:
            expect(entry.get("id") or None, str, operation, "id of an entry")
        return groups

    # ---- finding and removing

    def unused(self) -> list[Extra]:
        """Groups of clusters that no machine of the account has. The machines are only listed when there is a group."""
        ours = [entry for entry in self._groups() if is_group(str(entry.get("description") or ""))]
        held = self._held() if ours else set()
        return [
            Extra("vultr", GROUP, str(entry["id"]), str(entry["description"]), moment(entry.get("date_created")))
            for entry in ours
            if entry["id"] not in held
        ]

    def discard(self, extra: Extra) -> None:
        if extra.kind != GROUP:
            raise errors.InvalidInput(f"vultr: there is nothing of the kind {extra.kind!r}.")
        if extra.id in self._held():
            raise errors.Conflict(
                f"vultr: {extra.kind} {extra.id} of {extra.name} is in use.",
                remedy="It can go once no machine has it.",
                service="vultr",
            )
        with self._guard:
            self._delete(extra.id)

    def _held(self) -> set[str]:
        entries = self._calls.pages("/instances", "instances")
        operation = "GET /instances"
        machines = [self._calls.api.expect(entry, dict, operation, "an instance") for entry in entries]
        return {str(entry.get("firewall_group_id") or "") for entry in machines}

    def _delete(self, identity: str) -> None:
        self._calls.delete(f"/firewalls/{identity}")
        self._unused.discard(identity)
        self._ids = {name: known for name, known in self._ids.items() if known != identity}
