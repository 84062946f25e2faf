# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module talos_image where something is missing or odd, how a file comes into a bucket, and which old images go."""

from __future__ import annotations

import pathlib
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.disk_images import WantedImage
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp import storage

from sandbox import image_files
from sandbox.gcp_account import Disk
from sandbox.gcp_images import Image
from sandbox.gcp_storage import StoredObject
from sandbox.vultr_account import Snapshot
from sandbox.vultr_catalogue import vultr_offer
from sandbox.vultr_instances import launch

from .images import BUCKET, SCHEMATIC, Stand

OBJECT = "tgp-talos-v1-13-9-376567988ad3.raw.tar.gz"


@pytest.fixture(autouse=True)
def _own_pace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(name="vultr")
def _vultr(tmp_path: pathlib.Path) -> Stand:
    return Stand("vultr", tmp_path / "state")


@pytest.fixture(name="gcp")
def _gcp(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """With pieces so small that a file has five of them."""
    monkeypatch.setattr(storage, "PIECE", storage.UNIT)
    return Stand("gcp", tmp_path / "state")


@pytest.fixture(name="stand", params=["vultr", "gcp"])
def _stand(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Stand:
    return Stand(request.param, tmp_path / "state")


# ---- the bucket


@pytest.mark.parametrize("switches", [{}, {"short_pieces": 2}, {"lost_sessions": 1}])
def test_a_file_comes_into_the_bucket_whole(gcp: Stand, switches: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PIECE", 2 * storage.UNIT)
    gcp.gcp.turn(switches)
    made = gcp.call()
    assert made["image"]["state"] == "ready" and gcp.warnings == [], made
    assert gcp.gcp.own_images[made["name"]].schematic == SCHEMATIC, "the emulator has read it to its end"
    shown = "\n".join([*gcp.lines, str(made)])
    assert "% is there" in shown and "upload_id" not in shown and "5a5a5a5a" not in shown


@pytest.mark.parametrize("kind", ["lost_after", "lost_before", "status"])
def test_a_piece_whose_answer_is_lost_is_not_sent_blindly_again(gcp: Stand, kind: str) -> None:
    gcp.faults.add({"kind": kind, "service": "gcp", "method": "PUT", "path": "upload_id", "after_calls": 2, "status": 503})
    assert gcp.call()["image"]["state"] == "ready" and len(gcp.gcp.own_images) == 1


def test_the_answer_to_the_last_piece_may_be_lost(gcp: Stand) -> None:
    gcp.faults.add({"kind": "lost_after", "service": "gcp", "method": "PUT", "path": "upload_id", "after_calls": 4})
    assert gcp.call()["image"]["state"] == "ready"


def test_a_part_that_the_store_refuses_is_asked_for_at_the_factory_again(gcp: Stand) -> None:
    gcp.faults.add({"kind": "status", "service": "image_factory", "path": "^/store/", "after_calls": 3, "status": 403})
    assert gcp.call()["image"]["state"] == "ready"


def test_what_lies_in_the_bucket_already_is_not_sent_again(gcp: Stand) -> None:
    data = image_files.content(SCHEMATIC, "v1.13.9", "gcp-amd64.raw.tar.gz")
    gcp.gcp.buckets[BUCKET][OBJECT] = StoredObject(OBJECT, data, gcp.world.clock.now(), {})
    assert gcp.call()["image"]["state"] == "ready" and not [call for call in gcp.writes if "/upload/" in call]


def test_an_object_of_the_user_serves_and_stays(gcp: Stand) -> None:
    data = image_files.content(SCHEMATIC, "v1.13.9", "gcp-amd64.raw.tar.gz")
    gcp.gcp.buckets[BUCKET]["own.tar.gz"] = StoredObject("own.tar.gz", data, gcp.world.clock.now(), {})
    made = gcp.call(source=f"gs://{BUCKET}/own.tar.gz")
    assert made["image"]["state"] == "ready" and list(gcp.gcp.buckets[BUCKET]) == ["own.tar.gz"]
    assert not [call for call in gcp.calls if "/image/" in call or "/storage/" in call]


def test_an_object_that_is_no_image_fails_once(gcp: Stand) -> None:
    gcp.gcp.buckets[BUCKET]["own.tar.gz"] = StoredObject("own.tar.gz", b"nothing", gcp.world.clock.now(), {})
    failed = gcp.call(source=f"gs://{BUCKET}/own.tar.gz")
    assert failed["error"]["kind"] == "never_ready" and "INVALID_IMAGE" in gcp.warnings[0] and len(gcp.warnings) == 1
    missing = gcp.call(source=f"gs://{BUCKET}/none.tar.gz")
    assert missing["error"]["kind"] == "not_found" and "none.tar.gz" in missing["msg"]


@pytest.mark.parametrize(("params", "words"), [
    ({"bucket": None}, "made of an archive in a bucket"),
    ({"bucket": "gs://tgp-images"}, "cannot be the name of a bucket"),
    ({"source": "tgp-images/x"}, "Write it as gs://"),
    ({"source": "gs://tgp-images/x", "bucket": "tgp-images"}, "give one of"),
])  # fmt: skip
def test_a_bucket_that_can_be_none_is_refused_without_a_call(gcp: Stand, params: dict[str, t.Any], words: str) -> None:
    refused = gcp.call(**params)
    assert refused["error"]["kind"] == "invalid_input" and words in refused["msg"] and gcp.calls == []


def test_a_bucket_without_rights_and_one_that_is_missing_are_told_with_what_to_do(gcp: Stand) -> None:
    missing = gcp.call(bucket="other-bucket")
    assert "bucket does not exist" in missing["msg"] and "Make the bucket other-bucket" in missing["msg"]
    gcp.gcp.turn({"bucket_rights": False})
    refused = gcp.call()
    assert refused["error"]["kind"] == "forbidden" and "Storage Object" in refused["msg"] and "tgp-gpu@" in refused["msg"]
    assert gcp.gcp.own_images == {} and not list((gcp.state / "images").glob("*.json"))


def test_a_service_account_that_may_make_no_images_is_told_its_role(gcp: Stand) -> None:
    gcp.gcp.turn({"image_rights": False})
    refused = gcp.call()
    assert refused["error"]["kind"] == "forbidden" and "Compute Storage Admin" in refused["msg"]


# ---- Vultr


@pytest.mark.parametrize("params", [{"bucket": "x-y"}, {"source": "gs://x-y/z"}, {"project": "abc"}, {"arch": "arm64"}])
def test_what_means_nothing_to_vultr_is_refused(vultr: Stand, params: dict[str, str]) -> None:
    assert vultr.call(**params)["error"]["kind"] == "invalid_input" and vultr.calls == []


def test_a_full_account_is_told_and_nothing_is_remembered(vultr: Stand) -> None:
    vultr.vultr.turn({"snapshot_quota": 0})
    refused = vultr.call()
    assert "no snapshot was begun: You have reached the maximum number of snapshots" in refused["msg"]
    assert not list((vultr.state / "images").glob("*.json"))


def test_the_factory_is_asked_before_vultr_fetches(vultr: Stand) -> None:
    """Vultr fetches once; the first request for an image makes it."""
    vultr.call()
    asked = [call for call in vultr.calls if call.startswith("HEAD")]
    assert asked == [f"HEAD /image/{SCHEMATIC}/v1.13.9/vultr-amd64.raw"]
    assert vultr.calls.index(asked[0]) < vultr.calls.index("POST /v2/snapshots/create-from-url")


# ---- odd answers


@pytest.mark.parametrize(
    "body", [{}, {"snapshots": [{}], "meta": {"links": {"next": ""}}}, {"kind": "compute#imageList", "items": [{}]}, "x"]
)
def test_a_list_that_is_not_understood_makes_and_removes_nothing(stand: Stand, body: t.Any) -> None:
    old = stand.call(talos_version="1.12.11")["name"]
    stand.world.clock.advance(999999)
    path = "/v2/snapshots" if stand.provider == "vultr" else "/global/images"
    stand.faults.add({"kind": "body", "service": stand.provider, "method": "GET", "path": path, "body": body, "times": None})
    odd = stand.call(keep=1, min_age="0s")
    assert odd["error"]["kind"] == "bad_shape" and stand.writes == [] and stand.names == [old]


def test_machines_that_cannot_be_listed_keep_every_image(stand: Stand) -> None:
    stand.call(talos_version="1.12.11")
    stand.call()
    stand.world.clock.advance(999999)
    path = "/v2/instances" if stand.provider == "vultr" else "/aggregated/disks"
    stand.faults.add({"kind": "status", "service": stand.provider, "path": path, "status": 503, "times": None})
    assert stand.call(keep=1)["failed"] and len(stand.names) == 2 and stand.writes == []


@pytest.mark.parametrize("word", ["paused", "BROKEN"])
def test_an_image_in_a_state_that_nobody_knows_is_neither_used_nor_doubled(vultr: Stand, word: str) -> None:
    made = vultr.call()
    shown = {"id": made["image"]["id"], "description": made["name"], "status": word, "date_created": "2026-11-20T10:00:00+00:00"}
    body = {"snapshots": [shown], "meta": {"total": 1, "links": {"next": "", "prev": ""}}}
    vultr.faults.add({"kind": "body", "service": "vultr", "method": "GET", "path": "/v2/snapshots", "body": body, "times": None})
    odd = vultr.call(keep=1, min_age="0s")
    assert word in odd["msg"] and vultr.writes == []


# ---- old ones


def strangers(stand: Stand) -> list[str]:
    """Images of the account that are not ours; the second one looks so."""
    now, name = stand.world.clock.now(), "tgp-talos-v1-10-9-abababababab"
    if stand.provider == "vultr":
        for identity in ("mine", "tgp-talos"):
            stand.vultr.snapshots[identity] = Snapshot(identity, identity, "https://x.test/a.raw", 0.0, now)
        return ["mine", "tgp-talos"]
    stand.gcp.own_images["mine"] = Image("mine", "", "", {"tgp-managed": "true"}, 1, now, 0.0)
    stand.gcp.own_images[name] = Image(name, "tgp-talos", "", {}, 1, now, 0.0)
    return ["mine", name]


def use(stand: Stand, identity: str) -> None:
    """A machine of the account is made of it."""
    if stand.provider == "vultr":
        stand.world.offers.append(vultr_offer({"type": "vcg-a16-6c-64g-16vram", "region": "ewr", "stock": 1, "boot": 60.0}))
        launch(stand.world, stand.vultr, {"plan": "vcg-a16-6c-64g-16vram", "region": "ewr", "snapshot_id": identity})
    else:
        source = f"projects/tgp-sandbox/global/images/{identity}"
        stand.gcp.disks["us-central1-a", "x"] = Disk("us-central1-a", "x", 20, {}, stand.world.clock.now(), ["x"], True, source)


def test_old_images_go_by_policy_and_never_what_is_used_protected_young_or_not_ours(stand: Stand) -> None:
    ids = {}
    for version in ("1.10.9", "1.11.6", "1.12.11", "1.13.9"):
        ids[version] = stand.call(talos_version=version)["image"]["id"]
    others = strangers(stand)
    assert stand.call()["removed"] == [], "without keep nothing goes"
    assert stand.call(keep=1)["removed"] == [], "they are younger than a week"
    stand.world.clock.advance(timedelta(days=8).total_seconds())
    use(stand, ids["1.10.9"])
    wanted = {"keep": 1, "protect": [ids["1.12.11"]]}
    planned = stand.call(check=True, diff=True, **wanted)
    assert stand.writes == [] and planned["changed"]
    gone = stand.call(diff=True, **wanted)
    assert planned["removed"] == gone["removed"] and len(gone["removed"]) == 1 and planned["diff"] == gone["diff"]
    assert {row["talos_version"]: row["note"] for row in gone["images"]} == {
        "1.10.9": "a machine was made of it",
        "1.11.6": "is removed",
        "1.12.11": "is protected",
        "1.13.9": "is the one that is wanted",
    }
    assert set(others) <= set(stand.names) and len(stand.names) == 5
    again = stand.call(**wanted)
    assert not again["changed"] and stand.writes == []


def test_the_newest_stay_also_when_an_old_one_is_wanted(stand: Stand) -> None:
    for version in ("1.11.6", "1.12.11", "1.13.9"):
        stand.call(talos_version=version)
    stand.world.clock.advance(timedelta(days=8).total_seconds())
    (name,) = stand.call(talos_version="1.11.6", keep=1)["removed"]
    assert name == WantedImage(SCHEMATIC, "1.12.11").name(dots=stand.provider == "vultr") and len(stand.names) == 2


def test_an_image_of_somebody_else_with_the_same_name_is_left_alone(gcp: Stand) -> None:
    name = "tgp-talos-v1-13-9-376567988ad3"
    gcp.gcp.own_images[name] = Image(name, "", "", {}, 1, gcp.world.clock.now(), 0.0)
    refused = gcp.call()
    assert refused["error"]["kind"] == "conflict" and "not changed" in refused["msg"] and gcp.writes == []


def test_two_clusters_in_one_account_never_remove_each_others_images(stand: Stand) -> None:
    """Each image says for which cluster it was made; one of no cluster belongs to runs without one."""
    mine, theirs = "a1b2c3d4", "0badcafe"
    for cluster in (mine, theirs, None):
        for version in ("1.12.11", "1.13.9"):
            stand.call(talos_version=version, cluster_id=cluster, image_policy="Always")
    assert len(set(stand.names)) == 6 and sum(f"-c{mine}" in name for name in stand.names) == 2
    stand.world.clock.advance(timedelta(days=8).total_seconds())
    for cluster, left in ((mine, 5), (theirs, 4), (None, 3)):
        result = stand.call(cluster_id=cluster, keep=1)
        dots = stand.provider == "vultr"
        assert result["removed"] == [WantedImage(SCHEMATIC, "1.12.11", cluster=cluster or "").name(dots=dots)]
        assert len(stand.names) == left
        assert not stand.call(cluster_id=cluster, keep=1)["changed"]


def test_an_image_of_another_cluster_is_used_and_not_made_again(stand: Stand) -> None:
    first = stand.call(cluster_id="0badcafe")
    again = stand.call(cluster_id="a1b2c3d4", keep=1)
    assert (again["changed"], again["action"], again["setting"]) == (False, "found", first["setting"])
    assert again["images"][0]["cluster_id"] == "0badcafe"
    own = stand.call(cluster_id="a1b2c3d4", image_policy="Always")
    assert own["setting"] != first["setting"] and stand.call(cluster_id="a1b2c3d4")["setting"] == own["setting"]
    assert stand.call(cluster_id="0badcafe")["setting"] == first["setting"]


def test_a_label_of_another_cluster_than_the_name_is_not_ours(gcp: Stand) -> None:
    made = gcp.call(cluster_id="0badcafe")
    gcp.gcp.own_images[made["name"]].labels["tgp-cluster"] = "a1b2c3d4"
    assert "not changed" in gcp.call(cluster_id="0badcafe")["msg"] and gcp.writes == []


def test_a_cluster_id_that_is_none_is_refused_without_a_call(stand: Stand) -> None:
    assert "cluster_id" in stand.call(cluster_id="lab")["msg"] and stand.calls == []
