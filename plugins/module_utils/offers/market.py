# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud's offers, asked for or remembered."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import gzip
import hashlib
import json
import os
import threading
import typing as t
import zlib
from datetime import datetime
from decimal import Decimal, InvalidOperation

from ..core import tally
from ..core.clock import from_text, to_text
from ..core.errors import ApiError, BadShape, Conflict, InvalidInput, NotFound, TgpError
from ..core.files import replace, state_folder
from ..core.task import Task
from ..kube.client import NAMESPACE, Json, Kube, ensure_namespace
from ..model import CloudChoice, Lane, Offer, OfferQuery
from ..model.defaults import PRICE_TTL
from ..model.labels import MANAGED_BY_LABEL
from ..providers.registry import ENTRIES

PLACES = ("none", "file", "cluster")
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


class CachedOffers:
    """``cache`` None = always ask. ``ttl`` seconds for which a reading serves; ``refresh`` asks all the same and keeps the answer.
    ``keep`` False (check mode) writes nothing. Safe for threads."""

    def __init__(self, task: Task, cache: Cache | None, *, ttl: int = PRICE_TTL, refresh: bool = False, keep: bool = True) -> None:
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
        reading: OfferReading | None = None
        if cache is not None and not (self._refresh or refresh):
            reading = guarded(self._task.warn, "read", lambda: cache.get(key))
        now = self._task.clock.now()
        if reading is not None and -_FUTURE <= (now - reading.read).total_seconds() < self._ttl:
            _counted(cloud, "hit", (now - reading.read).total_seconds())
            return Quote(cloud, reading.offers, reading.read, hit=True)
        offers = tuple(ask())
        if cache is not None:
            _counted(cloud, "miss", 0.0)
        if cache is not None and self._keep:
            guarded(self._task.warn, "written", lambda: cache.put(key, OfferReading(cloud, now, offers)))
        return Quote(cloud, offers, now)

    def _public(self, cloud: str, choice: CloudChoice | None) -> list[str]:
        """The options of the cloud that are no secrets, and the class's settings: another address is another market."""
        entry, settings = ENTRIES[cloud], choice.settings if choice else {}
        options = {name: entry.option(self._task, name) or "" for name, option in entry.spec.items() if not option.get("no_log")}
        return [json.dumps([options, dict(settings)], sort_keys=True, default=str)]


def _counted(cloud: str, result: str, age: float) -> None:
    tally.count("tgp_offer_cache_requests", provider=cloud, result=result)
    tally.level("tgp_offer_cache_age_seconds", max(age, 0.0), provider=cloud)


def open_cache(task: Task, place: str, kube: Kube | None) -> Cache | None:
    """The cache of the option: ``file`` lies in the state folder, ``cluster`` in a ConfigMap."""
    if place == "file":
        return FolderCache(os.path.join(state_folder(task.params), "offers"))
    if place == "cluster":
        if kube is None:
            raise InvalidInput(
                "The offer cache in the cluster needs a cluster.",
                remedy=f"Give a kubeconfig, or set {task.called('cache')} to file.",
            )
        return ConfigMapCache(kube)
    return None


# ---- where readings are kept between runs, so that a question asked twice within minutes costs one call. A cache that cannot be read is
# a miss, and one that cannot be written is none: both are warnings, never a failure, and never "no offers". Two places with one
# behaviour: a folder of files, and one ConfigMap in tgp-system

CONFIGMAP = "tgp-offer-cache"
CONFIGMAP_LIMIT = 700_000  # bytes of packed readings as base64; the API server takes about a megabyte
FOLDER_LIMIT = 200  # readings in a folder
_TRIES = 4
_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class Cache(t.Protocol):
    """``get`` returns None for what is not there; both verbs raise a TgpError when the place cannot be used."""

    def get(self, key: str) -> OfferReading | None: ...

    def put(self, key: str, reading: OfferReading) -> None: ...


class FolderCache:
    """One file per reading in ``folder``, written beside and renamed into place. The oldest go when there are too many."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def get(self, key: str) -> OfferReading | None:
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                return unpack(file.read(), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadShape(f"{path} cannot be read: {error.strerror}.", service="offer cache") from error

    def put(self, key: str, reading: OfferReading) -> None:
        replace(self._path(key), pack(reading))
        self._trim()

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.json.gz")

    def _trim(self) -> None:
        try:
            entries = [entry for entry in os.scandir(self._folder) if entry.name.endswith(".json.gz")]
            for entry in sorted(entries, key=lambda file: file.stat().st_mtime)[: max(len(entries) - FOLDER_LIMIT, 0)]:
                os.unlink(entry.path)
        except OSError:
            return  # another run trims at the same time, or nobody may; a few files too many hurt nobody


class ConfigMapCache:
    """All readings in the ConfigMap ``tgp-offer-cache``, compressed; the oldest go when it would become too large. Safe for threads."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._lock = threading.Lock()

    def get(self, key: str) -> OfferReading | None:
        raw = self._kube.find(f"{_PATH}/{CONFIGMAP}")
        entry = None if raw is None else next((name for name in _entries(raw) if _key(name) == key), None)
        if raw is None or entry is None:
            return None
        return unpack(_bytes(_entries(raw)[entry]), f"ConfigMap {NAMESPACE}/{CONFIGMAP} key {entry}")

    def put(self, key: str, reading: OfferReading) -> None:
        """Replaces the very version that was read; gives up after a few rounds against others."""
        text = base64.b64encode(pack(reading)).decode()
        if len(text) > CONFIGMAP_LIMIT:
            raise BadShape(
                f"{len(reading.offers)} offers of {reading.cloud} are too many for a ConfigMap and were not kept.",
                remedy="Ask for less, or keep the cache in a folder (cache: file).",
                service="offer cache",
            )
        name = f"{key}.{int(reading.read.timestamp())}"
        with self._lock:
            for attempt in range(_TRIES):
                try:
                    self._write(name, key, text)
                    return
                except Conflict:
                    if attempt == _TRIES - 1:
                        raise

    def _write(self, name: str, key: str, text: str) -> None:
        raw = self._kube.find(f"{_PATH}/{CONFIGMAP}")
        kept = {} if raw is None else {entry: value for entry, value in _entries(raw).items() if _key(entry) != key}
        for entry in sorted(kept, key=_age):
            if sum(map(len, kept.values())) + len(text) <= CONFIGMAP_LIMIT:
                break
            del kept[entry]
        meta: Json = {"name": CONFIGMAP, "namespace": NAMESPACE, "labels": {MANAGED_BY_LABEL: "tgp.gpu"}}
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": {**kept, name: text}}
        if raw is not None:
            meta["resourceVersion"] = raw["metadata"]["resourceVersion"]
            self._kube.replace(f"{_PATH}/{CONFIGMAP}", body)
            return
        try:
            self._kube.create(_PATH, body)
        except NotFound:
            ensure_namespace(self._kube)
            self._kube.create(_PATH, body)


def _entries(raw: Json) -> dict[str, str]:
    """Entries of the ConfigMap: name "<key>.<unix seconds of reading>" → base64."""
    data = raw.get("binaryData") or {}
    return {str(name): str(text) for name, text in data.items()} if isinstance(data, dict) else {}


def _key(entry: str) -> str:
    return entry.rpartition(".")[0]


def _age(entry: str) -> tuple[int, str]:
    """Older entries first; a name that is not ours goes before all."""
    seconds = entry.rpartition(".")[2]
    return (int(seconds) if seconds.isdecimal() else 0, entry)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadShape(f"ConfigMap {NAMESPACE}/{CONFIGMAP} is not understood: {error}.", service="offer cache") from error


def guarded(warn: t.Callable[[str], None], operation: str, act: t.Callable[[], t.Any]) -> t.Any:
    """``act()``, or None and a warning: a cache only saves work."""
    try:
        return act()
    except (ApiError, TgpError) as error:
        warn(
            f"The offer cache could not be {operation}, so the cloud is asked: {error}"
            if operation == "read"
            else f"Offers were not kept: {error}"
        )
        return None


# ---- one cloud's answer to one question, as it is kept: the offers, when they were read, and what was asked. Nothing of an account goes
# in: offers are what anybody is shown. Prices keep every digit

VERSION = 1
_MONEY = frozenset({"price_hour", "storage_price_hour", "reliability", "min_bid", "traffic_price_gb_down", "traffic_price_gb_up"})
_FIELDS = {field.name: field for field in dataclasses.fields(Offer)}
_DEFAULTS = {
    name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    for name, field in _FIELDS.items()
}


@dataclasses.dataclass(frozen=True, slots=True)
class OfferReading:
    """What a cloud offered at the moment ``read``."""

    cloud: str
    read: datetime
    offers: tuple[Offer, ...]


def key_of(cloud: str, endpoint: t.Sequence[str], query: OfferQuery) -> str:
    """The name of a reading: the cloud and a digest of where and what it was asked. Good as a file name and as a ConfigMap key."""
    asked = {name: _plain(getattr(query, name)) for name in sorted(field.name for field in dataclasses.fields(query))}
    text = json.dumps([list(endpoint), asked], sort_keys=True)
    return f"{cloud}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, tuple):
        return sorted(str(getattr(entry, "value", entry)) for entry in value)
    return value


def pack(reading: OfferReading) -> bytes:
    """Compressed JSON; the same for the same reading."""
    body = {
        "version": VERSION,
        "cloud": reading.cloud,
        "read": to_text(reading.read),
        "offers": [_brief(offer) for offer in reading.offers],
    }
    return gzip.compress(json.dumps(body, sort_keys=True, separators=(",", ":")).encode(), 6, mtime=0)


def unpack(data: bytes, where: str) -> OfferReading:
    """The reading in ``data``; BadShape naming the place when it is torn or odd."""
    try:
        body = json.loads(gzip.decompress(data))
        if body["version"] != VERSION:
            raise ValueError(f"it is of version {body['version']!r}")
        read = from_text(body["read"])
        return OfferReading(str(body["cloud"]), read, tuple(_offer(offer, read) for offer in body["offers"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise BadShape(f"{where} is not understood: {error!r}.", service="offer cache") from error


def _brief(offer: Offer) -> dict[str, t.Any]:
    """The fields that differ from the default; ``seen`` is the reading's own moment."""
    brief: dict[str, t.Any] = {}
    for name in _FIELDS:
        value = getattr(offer, name)
        if name == "seen" or value == _DEFAULTS[name]:
            continue
        if isinstance(value, Decimal):
            value = str(value)
        elif name == "lanes":
            value = [lane.value for lane in value]
        elif name == "traits":
            value = dict(value)
        brief[name] = value
    return brief


def _offer(brief: dict[str, t.Any], read: datetime) -> Offer:
    facts: dict[str, t.Any] = {**brief, "seen": read}
    for name in _MONEY & facts.keys():
        facts[name] = None if facts[name] is None else Decimal(facts[name])
    facts["lanes"] = tuple(Lane(word) for word in facts.get("lanes", ()))
    facts.setdefault("price_hour", None)
    return Offer(**facts)
