# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud's offers, asked for or remembered."""

from __future__ import annotations

import dataclasses
import json
import os
import typing as t
from datetime import datetime

from ..core.errors import InvalidInput
from ..core.task import Task
from ..kube.client import Kube
from ..model import CloudChoice, Offer, OfferQuery
from ..model.defaults import Settings
from ..providers.registry import ENTRIES
from ..store.records import state_dir
from .cache import Cache, ConfigMapCache, FolderCache, guarded
from .record import Reading, key_of

PLACES = ("none", "file", "cluster")
TTL = Settings().price_ttl
_FUTURE = 5.0  # seconds by which a reading may lie ahead of our clock


@dataclasses.dataclass(frozen=True, slots=True)
class Quote:
    """``offers`` as read at the moment ``read``. ``hit``: they were remembered, nobody was asked."""

    cloud: str
    offers: tuple[Offer, ...]
    read: datetime
    hit: bool = False

    def age(self, now: datetime) -> int:
        """Whole seconds since they were read."""
        return max(int((now - self.read).total_seconds()), 0)


class Market:
    """``cache`` None = always ask. ``ttl`` seconds for which a reading serves; ``refresh`` asks all the same and keeps the answer.
    ``keep`` False (check mode) writes nothing. Safe for threads."""

    def __init__(self, task: Task, cache: Cache | None, *, ttl: int = TTL, refresh: bool = False, keep: bool = True) -> None:
        self._task = task
        self._cache = cache
        self._ttl = ttl
        self._refresh = refresh
        self._keep = keep

    def offers(
        self,
        cloud: str,
        query: OfferQuery,
        ask: t.Callable[[], t.Sequence[Offer]],
        choice: CloudChoice | None = None,
        *,
        refresh: bool = False,
    ) -> Quote:
        """The offers of ``cloud``; ``ask`` is called when no young enough reading is there, or for ``refresh``. ``choice``: the class's
        entry, whose settings may narrow what is offered. Own machines are always asked: they cost nothing to ask, and what they offer is
        whether they are off."""
        cache = self._cache if cloud in ENTRIES and ENTRIES[cloud].facts.rented else None
        key = key_of(cloud, self._public(cloud, choice), query) if cache is not None else ""
        found: Reading | None = None
        if cache is not None and not (self._refresh or refresh):
            found = guarded(self._task.warn, "read", lambda: cache.get(key))
        now = self._task.clock.now()
        if found is not None and -_FUTURE <= (now - found.read).total_seconds() < self._ttl:
            return Quote(cloud, found.offers, found.read, hit=True)
        offers = tuple(ask())
        if cache is not None and self._keep:
            guarded(self._task.warn, "written", lambda: cache.put(key, Reading(cloud, now, offers)))
        return Quote(cloud, offers, now)

    def _public(self, cloud: str, choice: CloudChoice | None) -> list[str]:
        """The options of the cloud that are no secrets, and the class's settings: another address is another market."""
        entry, settings = ENTRIES[cloud], choice.settings if choice else {}
        options = {name: entry.option(self._task, name) or "" for name, one in entry.spec.items() if not one.get("no_log")}
        return [json.dumps([options, dict(settings)], sort_keys=True, default=str)]


def open_cache(task: Task, place: str, kube: Kube | None) -> Cache | None:
    """The cache of the option: ``file`` lies in the state folder, ``cluster`` in a ConfigMap."""
    if place == "file":
        return FolderCache(os.path.join(state_dir(task), "offers"))
    if place == "cluster":
        if kube is None:
            raise InvalidInput(
                "The offer cache in the cluster needs a cluster.",
                remedy=f"Give a kubeconfig, or set {task.called('cache')} to file.",
            )
        return ConfigMapCache(kube)
    return None
