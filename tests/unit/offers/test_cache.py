# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings come back as they were kept, from a folder and from a ConfigMap; what is damaged is an error, never "no offers"."""

from __future__ import annotations

import base64
import dataclasses
import os
import random
import threading
import typing as t
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape, Forbidden, InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube, explain
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, Offer, OfferQuery
from ansible_collections.tgp.gpu.plugins.module_utils.offers import market as caches
from ansible_collections.tgp.gpu.plugins.module_utils.offers.market import (
    Cache,
    ConfigMapCache,
    FolderCache,
    OfferReading,
    key_of,
    pack,
    unpack,
)

from sandbox.clock import SimClock
from sandbox.kube import KubeApi

from ..fleet.build import NOON, offer

FULL = Offer(
    cloud="vast",
    id="8100001",
    instance_type="RTX4090 x2",
    model="RTX4090",
    gpu_count=2,
    price_hour=Decimal("0.3166666666666666666666666667"),
    region="eu-north",
    cloud_region="Sweden, SE",
    gpu_memory_mib=24564,
    vcpus=16,
    memory_mib=64000,
    disk_gib=80,
    spot=True,
    storage_price_hour=Decimal("0.0166666666666666666666666667"),
    available=0,
    reliability=Decimal("0.9876543"),
    host_id="5511",
    arch="arm64",
    lanes=(Lane.KUBELET, Lane.SERVICE),
    seen=NOON,
    min_bid=Decimal("0.2"),
    price_estimated=True,
    traffic_price_gb_down=Decimal("0.002"),
    traffic_price_gb_up=Decimal("0.004"),
    traits={"verified": "true", "cuda": "12.8"},
)


@pytest.fixture
def kube() -> t.Iterator[Kube]:
    emulator = KubeApi(SimClock()).start()
    headers = {"authorization": f"Bearer {emulator.admin_token}"}
    api = Api("kubernetes", "http://kube.test", headers=headers, transport=httpx.WSGITransport(app=emulator.app), explain=explain)
    yield Kube(api)
    emulator.stop()


@pytest.fixture(params=["folder", "configmap"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Cache:
    if request.param == "folder":
        return FolderCache(str(tmp_path / "offers"))
    return ConfigMapCache(request.getfixturevalue("kube"))


def reading(*offers: Offer, cloud: str = "vast", minutes: float = 0) -> OfferReading:
    read = NOON + timedelta(minutes=minutes)
    return OfferReading(cloud, read, tuple(dataclasses.replace(one, seen=read) for one in offers))


def test_every_field_of_an_offer_comes_back_exactly() -> None:
    """Also one that is added later: each field of FULL differs from its default."""
    plain = Offer("", "", "", "", 0, None)
    same = [one.name for one in dataclasses.fields(Offer) if getattr(FULL, one.name) == getattr(plain, one.name)]
    assert same == []
    for one in (reading(FULL), reading(plain), reading()):
        assert unpack(pack(one), "here") == one


def test_S1_15_what_was_kept_is_found_and_replaced(cache: Cache) -> None:
    key = key_of("vast", [], OfferQuery())
    assert cache.get(key) is None
    cache.put(key, reading(FULL))
    assert cache.get(key) == reading(FULL)
    cache.put(key, reading(minutes=1))
    assert cache.get(key) == reading(minutes=1)


def test_questions_and_places_have_keys_of_their_own(cache: Cache) -> None:
    asked = [OfferQuery(), OfferQuery(models=("A10",)), OfferQuery(max_price_hour=Decimal("0.5")), OfferQuery(spot=True)]
    keys = [key_of(cloud, where, one) for cloud in ("vast", "lambda") for where in ([], ["vast_api_url=x"]) for one in asked]
    assert len(set(keys)) == 16
    assert key_of("vast", [], OfferQuery(max_price_hour=Decimal("0.50"))) == key_of("vast", [], asked[2])
    for number, key in enumerate(keys):
        cache.put(key, reading(offer(str(number))))
    assert [cache.get(key) for key in keys] == [reading(offer(str(number))) for number in range(16)]


WHOLE = pack(reading(FULL))


@pytest.mark.parametrize("damage", [b"", b"noon", WHOLE[:-20], WHOLE[:5], WHOLE[:10] + b"\xff" * 8 + WHOLE[18:]])
def test_a_damaged_file_is_an_error(tmp_path: Path, damage: bytes) -> None:
    cache = FolderCache(str(tmp_path))
    cache.put("vast-0", reading(FULL))
    (tmp_path / "vast-0.json.gz").write_bytes(damage)
    with pytest.raises(BadShape, match="vast-0"):
        cache.get("vast-0")


@pytest.mark.parametrize("damage", ["", base64.b64encode(b"noon").decode()])
def test_a_damaged_entry_is_an_error_and_can_be_written_over(kube: Kube, damage: str) -> None:
    cache = ConfigMapCache(kube)
    cache.put("vast-0", reading(FULL))
    path = "/api/v1/namespaces/tgp-system/configmaps/tgp-offer-cache"
    entry = next(iter(kube.get(path)["binaryData"]))
    kube.patch(path, {"binaryData": {entry: damage}})
    with pytest.raises(BadShape, match="tgp-offer-cache"):
        cache.get("vast-0")
    cache.put("vast-0", reading(FULL, minutes=1))
    assert cache.get("vast-0") == reading(FULL, minutes=1)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = FolderCache(str(tmp_path / "file" / "offers"))
    with pytest.raises(InvalidInput, match="cannot be written"):
        cache.put("vast-0", reading(FULL))
    with pytest.raises(BadShape, match="cannot be read"):
        cache.get("vast-0")


def test_files_are_private_whole_and_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "FOLDER_LIMIT", 3)
    cache = FolderCache(str(tmp_path / "offers"))
    for number in range(6):
        cache.put(f"vast-{number}", reading(FULL))
        os.utime(tmp_path / "offers" / f"vast-{number}.json.gz", (number, number))
    found = sorted(path.name for path in (tmp_path / "offers").iterdir())
    assert len(found) == 3 and found[-1] == "vast-5.json.gz"
    assert (tmp_path / "offers" / found[-1]).stat().st_mode & 0o077 == 0


def many(count: int, seed: int) -> tuple[Offer, ...]:
    """Offers that do not compress well."""
    draw = random.Random(seed)
    return tuple(
        dataclasses.replace(
            FULL, id=str(draw.getrandbits(64)), host_id=str(draw.getrandbits(64)), price_hour=Decimal(draw.getrandbits(60))
        )
        for _number in range(count)
    )


def test_the_configmap_stays_small_and_loses_the_oldest(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "CONFIGMAP_LIMIT", 40_000)
    cache = ConfigMapCache(kube)
    for number in range(4):
        cache.put(f"vast-{number}", reading(*many(300, number), minutes=number))
    raw = kube.get("/api/v1/namespaces/tgp-system/configmaps/tgp-offer-cache")
    assert sum(map(len, raw["binaryData"].values())) <= 40_000
    assert cache.get("vast-0") is None and len((cache.get("vast-3") or reading()).offers) == 300
    with pytest.raises(BadShape, match="too many for a ConfigMap"):
        cache.put("vast-9", reading(*many(3000, 9), minutes=9))
    assert cache.get("vast-3") is not None


def test_writers_at_the_same_time_lose_nothing(kube: Kube) -> None:
    ConfigMapCache(kube).put("first-0", reading(FULL))
    threads = [threading.Thread(target=ConfigMapCache(kube).put, args=(f"vast-{one}", reading(FULL))) for one in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(ConfigMapCache(kube).get(key) for key in ("first-0", "vast-0", "vast-1", "vast-2"))


def test_missing_rights_are_an_error_of_the_cache_alone() -> None:
    said: list[str] = []

    def refused() -> None:
        raise Forbidden("kubernetes: not allowed to get configmaps.", service="kubernetes", status=403)

    assert caches.guarded(said.append, "read", refused) is None
    assert caches.guarded(said.append, "written", refused) is None
    assert ["so the cloud is asked" in said[0], "were not kept" in said[1]] == [True, True]
