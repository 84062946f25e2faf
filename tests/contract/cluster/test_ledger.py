# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger on bad days: torn lines, full disks, full ConfigMaps, parts that are missing, and two places at once."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError, BadShape, InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Phase
from ansible_collections.tgp.gpu.plugins.module_utils.store import directory
from ansible_collections.tgp.gpu.plugins.module_utils.store.configmap import ConfigMapStore
from ansible_collections.tgp.gpu.plugins.module_utils.store.directory import DirectoryStore
from ansible_collections.tgp.gpu.plugins.module_utils.store.open_store import BookedStore, open_store
from ansible_collections.tgp.gpu.plugins.module_utils.store.records import ClaimStore, encode, encode_claim

from .conftest import UID, Cluster, make_claim, make_task

PARTS = "/api/v1/namespaces/tgp-system/configmaps"
TORN = ['{"name": "tgp-b", "cost": "0.1', "", "[]", "null"]


def names(store: ClaimStore) -> list[str]:
    lines, torn = store.ledger_records()
    assert not torn
    return sorted(str(one["name"]) for one in lines)


def parts(kube: Kube) -> list[str]:
    return [one["metadata"]["name"] for one in kube.list(PARTS, {"labelSelector": "tgp.io/ledger"})]


# ---- torn lines


@pytest.mark.parametrize("text", TORN)
def test_L16_a_torn_file_is_told_of_and_the_others_are_read(tmp_path: Path, text: str) -> None:
    store = DirectoryStore(str(tmp_path))
    for name in ("tgp-a", "tgp-b", "tgp-c"):
        store.ledger({"name": name, "cost": "0.10"})
    (tmp_path / "ledger" / "tgp-b.json").write_text(text)
    lines, torn = store.ledger_records()
    assert sorted(one["name"] for one in lines) == ["tgp-a", "tgp-c"] and torn == [
        (str(tmp_path / "ledger" / "tgp-b.json"), "tgp-b")
    ]
    with pytest.raises(BadShape, match="tgp-b"):
        store.ledger_lines()
    assert store.ledger({"name": "tgp-b", "cost": "0.10"}) is True, "the line is written anew"
    assert store.ledger({"name": "tgp-b", "cost": "9.99"}) is False
    assert names(store) == ["tgp-a", "tgp-b", "tgp-c"]


@pytest.mark.parametrize("text", TORN)
def test_L16_a_torn_line_in_the_cluster_is_told_of_and_the_others_are_read(cluster: Cluster, kube: Kube, text: str) -> None:
    for name in ("tgp-a", "tgp-b", "tgp-c"):
        ConfigMapStore(kube).ledger({"name": name, "cost": "0.10"})
    cluster.must("PATCH", f"{PARTS}/tgp-ledger-00000", {"data": {"tgp-b": text}})
    store = ConfigMapStore(kube)
    lines, torn = store.ledger_records()
    assert sorted(one["name"] for one in lines) == ["tgp-a", "tgp-c"]
    assert torn == [("ConfigMap tgp-system/tgp-ledger-00000 key tgp-b", "tgp-b")]
    assert store.ledger({"name": "tgp-b", "cost": "0.10"}) is True
    assert store.ledger({"name": "tgp-b", "cost": "9.99"}) is False
    assert names(ConfigMapStore(kube)) == ["tgp-a", "tgp-b", "tgp-c"] and parts(kube) == ["tgp-ledger-00000"]


def test_L16_what_is_no_line_at_all_is_torn(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    store.ledger({"name": "tgp-a"})
    (tmp_path / "ledger" / "notes.txt").write_text("hello")
    (tmp_path / "ledger" / "tgp-x.json").write_bytes(b"\xff\xfe")
    (tmp_path / "ledger" / "Bad Name.json").write_text("{}")
    (tmp_path / "ledger" / ".new-1").write_text("{")  # of a process that was killed before the rename: no line yet
    lines, torn = store.ledger_records()
    assert len(lines) == 1 and [(Path(one.place).name, one.key) for one in torn] == [
        ("Bad Name.json", "Bad Name"), ("notes.txt", ""), ("tgp-x.json", "tgp-x"),
    ]  # fmt: skip


def test_a_configmap_that_only_claims_to_be_a_part_stops_no_closing_line(cluster: Cluster, kube: Kube) -> None:
    ConfigMapStore(kube).write_state("x", {})
    labels = {"tgp.io/ledger": "true"}
    cluster.must("POST", PARTS, {"metadata": {"name": "mine", "labels": labels}, "data": {"a": "{}"}})
    store = ConfigMapStore(kube)
    assert store.ledger({"name": "tgp-a1b2c3d4-p-00000", "cost": "0.10"})
    lines, torn = store.ledger_records()
    assert [one["cost"] for one in lines] == ["0.10"] and torn == [("ConfigMap tgp-system/mine", "")]


# ---- no room


class FullDisk:
    """While it is on, nothing can be written any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            if self.on:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


def test_L16_on_a_full_disk_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, disk = DirectoryStore(str(tmp_path)), FullDisk(monkeypatch)
    claim = store.write(make_claim())
    store.ledger({"name": "tgp-a"})
    disk.on = True
    for write in (lambda: store.ledger({"name": "tgp-b"}), lambda: store.write(claim), lambda: store.write_state("x", {"a": 1})):
        with pytest.raises(ApiError, match="No space left on device"):
            write()
    assert names(store) == ["tgp-a"] and store.claims() == [claim] and store.read_state("x") == {}
    assert [one for one in os.listdir(tmp_path / "ledger") if one.startswith(".new")] == []
    disk.on = False
    assert store.ledger({"name": "tgp-b"}) is True


def test_L16_the_ledger_goes_on_where_the_api_server_says_that_a_part_is_full(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    store.ledger({"name": "tgp-0"})
    for number, status in enumerate((413, 422), start=1):
        cluster.faults.add({"kind": "status", "status": status, "method": "PATCH", "path": "tgp-ledger", "times": 1})
        assert store.ledger({"name": f"tgp-{number}"}) is True
    assert parts(kube) == ["tgp-ledger-00000", "tgp-ledger-00001", "tgp-ledger-00002"]
    assert names(ConfigMapStore(kube)) == ["tgp-0", "tgp-1", "tgp-2"]


def test_L16_a_part_that_was_removed_is_never_written_over(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    for number in range(12):
        store.ledger({"name": f"tgp-{number:02d}", "note": "x" * 10_000})
    assert len(parts(kube)) == 3
    cluster.must("DELETE", f"{PARTS}/tgp-ledger-00001")
    later = ConfigMapStore(kube)
    for number in range(6):
        assert later.ledger({"name": f"new-{number}", "note": "x" * 10_000}) is True
    assert parts(kube) == ["tgp-ledger-00000", "tgp-ledger-00002", "tgp-ledger-00003"]


def test_L16_a_part_that_is_removed_meanwhile_stops_no_line(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    store.ledger({"name": "tgp-a"})
    cluster.must("DELETE", f"{PARTS}/tgp-ledger-00000")
    assert store.ledger({"name": "tgp-b"}) is True
    assert names(ConfigMapStore(kube)) == ["tgp-b"]


# ---- in two places


@pytest.fixture
def both(kube: Kube, tmp_path: Path) -> tuple[ClaimStore, ClaimStore, ClaimStore]:
    first, second = ConfigMapStore(kube), DirectoryStore(str(tmp_path))
    return BookedStore(first, [first, second]), first, second


def test_L16_a_line_stands_in_both_places(both: tuple[ClaimStore, ClaimStore, ClaimStore]) -> None:
    store, first, second = both
    assert store.ledger({"name": "tgp-a"}) is True and store.ledger({"name": "tgp-a"}) is False
    assert names(store) == names(first) == names(second) == ["tgp-a"]
    claim = store.write(make_claim())
    assert store.claims() == first.claims() == [claim] and second.claims() == []


def test_L16_a_place_that_failed_gets_its_line_later(
    both: tuple[ClaimStore, ClaimStore, ClaimStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, first, second = both
    disk = FullDisk(monkeypatch)
    disk.on = True
    with pytest.raises(ApiError):
        store.ledger({"name": "tgp-a"})
    disk.on = False
    assert names(first) == ["tgp-a"] and names(second) == []
    assert store.ledger({"name": "tgp-a"}) is True
    assert names(second) == ["tgp-a"] and len(store.ledger_lines()) == 1


def test_L16_a_line_torn_in_one_place_and_whole_in_the_other_is_whole(
    both: tuple[ClaimStore, ClaimStore, ClaimStore], tmp_path: Path
) -> None:
    store, _first, _second = both
    for name in ("tgp-a", "tgp-b"):
        store.ledger({"name": name})
    (tmp_path / "ledger" / "tgp-a.json").write_text("{")
    assert names(store) == ["tgp-a", "tgp-b"]
    (tmp_path / "ledger" / "only-here.json").write_text("{")
    assert len(store.ledger_records()[1]) == 1


@pytest.mark.parametrize(
    ("options", "cluster_has", "folder_has"),
    [
        ({}, True, False),
        ({"ledger": "cluster"}, True, False),
        ({"ledger": "file"}, False, True),
        ({"ledger": "both"}, True, True),
        ({"claim_store": "directory"}, False, True),
        ({"claim_store": "directory", "ledger": "cluster"}, True, False),
        ({"claim_store": "directory", "ledger": "both"}, True, True),
    ],
)
@pytest.mark.parametrize("by_environment", [False, True])
def test_L16_where_the_ledger_is_kept(
    kube: Kube,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, t.Any],
    cluster_has: bool,
    folder_has: bool,
    by_environment: bool,
) -> None:
    given = dict(options)
    if by_environment and "ledger" in given:
        monkeypatch.setenv("TGP_LEDGER", given.pop("ledger"))
    store = open_store(make_task(**given, state_dir=str(tmp_path)), kube)
    store.ledger({"name": "tgp-a"})
    store.write(make_claim())
    assert (names(ConfigMapStore(kube)) == ["tgp-a"]) is cluster_has
    folder = tmp_path / UID[:8]
    assert (folder / "ledger" / "tgp-a.json").exists() is folder_has
    assert (ConfigMapStore(kube).claims() == []) is (options.get("claim_store") == "directory")


def test_L16_a_ledger_nobody_knows_is_refused(kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_LEDGER", "paper")
    with pytest.raises(InvalidInput, match="paper"):
        open_store(make_task(state_dir=str(tmp_path)), kube)
    monkeypatch.delenv("TGP_LEDGER")
    with pytest.raises(InvalidInput, match="needs a cluster"):
        open_store(make_task(claim_store="directory", ledger="both", cluster_id="a1b2c3d4", state_dir=str(tmp_path)), None)


# ---- size


def closing(number: int) -> dict[str, t.Any]:
    """A line as long as those of the product."""
    return {"name": f"tgp-a1b2c3d4-training-{number:05d}", "cost": "0.10", "why": "x" * 560}


def test_L16_a_thousand_closings_write_little(cluster: Cluster, kube: Kube) -> None:
    """Each added line is a new revision of its part in etcd. One call for a line, and parts of 60 kB."""
    store, written = ConfigMapStore(kube), 0
    store.ledger(closing(0))
    before = len(cluster.writes())
    for number in range(1, 1000):
        assert store.ledger(closing(number))
        if number % 10 == 0:
            written += 10 * max(len(str(one["data"])) for one in kube.list(PARTS, {"labelSelector": "tgp.io/ledger"})[-1:])
    assert len(cluster.writes()) - before == 999
    assert written < 40_000_000, "with parts of 600 kB it was 310 MB"
    assert all(len(str(one["data"])) < 64_000 for one in kube.list(PARTS, {"labelSelector": "tgp.io/ledger"}))
    assert len(names(ConfigMapStore(kube))) == 1000


def test_L16_a_ledger_of_fifty_thousand_lines_takes_the_next_one(cluster: Cluster, kube: Kube) -> None:
    meta = {"namespace": "tgp-system", "labels": {"tgp.io/ledger": "true"}}
    cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    for part in range(588):
        lines = {one["name"]: encode(one) for one in map(closing, range(part * 85, part * 85 + 85))}
        cluster.must("POST", PARTS, {"metadata": {**meta, "name": f"tgp-ledger-{part:05d}"}, "data": lines})
    store = ConfigMapStore(cluster.client())
    assert store.ledger(closing(7)) is False and store.ledger(closing(60_000)) is True
    lines, torn = ConfigMapStore(cluster.client()).ledger_records()
    assert len(lines) == 588 * 85 + 1 and not torn


class Reads:
    """A folder of many files without a disk that holds them: ``files`` lie in memory, what the store writes lies in the folder. ``taken``
    tells how many files were opened to be read, and how many listings there were, since it was asked last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[Path, str]) -> None:
        self.opened = self.listed = 0
        listing = os.listdir

        def opening(path: str, *words: t.Any, **more: t.Any) -> t.Any:
            self.opened += 1
            text = None if os.path.exists(path) else files.get(Path(path))
            return open(path, *words, **more) if text is None else io.StringIO(text)

        def listdir(folder: str) -> list[str]:
            self.listed += 1
            return list({*listing(folder), *(path.name for path in files if path.parent == Path(folder))})

        monkeypatch.setattr(directory, "open", opening, raising=False)
        monkeypatch.setattr(os, "listdir", listdir)

    def taken(self) -> tuple[int, int]:
        found = (self.opened, self.listed)
        self.opened = self.listed = 0
        return found


def test_L16_a_folder_of_fifty_thousand_lines_takes_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing reads its own line only, however many there are; a report and an archive read each line once."""
    store = DirectoryStore(str(tmp_path))
    lines = [closing(number) for number in range(50_000)]
    reads = Reads(monkeypatch, {tmp_path / "ledger" / f"{line['name']}.json": encode(line) for line in lines})
    assert store.ledger(lines[7]) is False and reads.taken() == (1, 0)
    assert store.ledger(closing(60_000)) is True and reads.taken() == (1, 0)
    found, torn = store.ledger_records()
    assert len(found) == 50_001 and not torn and reads.taken() == (50_001, 1)
    parts = store.ledger_parts()
    assert len(parts) == 50_001 and reads.taken() == (50_001, 1)
    store.remove_part(parts[-1])
    assert reads.taken() == (1, 0) and not list((tmp_path / "ledger").iterdir())


def test_L02_of_two_thousand_claims_in_a_folder_each_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list reads all of them; to write or to remove one, only that one is read."""
    store = DirectoryStore(str(tmp_path))
    made = [make_claim(f"tgp-a1b2c3d4-training-{number:05d}") for number in range(2000)]
    reads = Reads(monkeypatch, {tmp_path / "claims" / f"{one.name}.json": encode_claim(one) for one in made})
    listed = store.claims()
    assert [one.name for one in listed] == [one.name for one in made] and reads.taken() == (2000, 1)
    written = store.write(dataclasses.replace(listed[7], phase=Phase.PROVISIONING))
    assert reads.taken() == (1, 0)
    store.remove(written)
    assert reads.taken() == (2, 0), "whether it is there, and whether it is as it was"


def test_L02_two_thousand_claims_are_written_and_listed(fresh_store: ClaimStore) -> None:
    made = [fresh_store.write(make_claim(f"tgp-a1b2c3d4-training-{number:05d}")) for number in range(2000)]
    assert fresh_store.claims() == made
    state = {f"NodeGone|lambda|{one.name}|{kind}": "2026-08-20T12:00:00Z" for one in made for kind in range(4)}
    fresh_store.write_state("findings", state)
    assert fresh_store.read_state("findings") == state and len(encode(state)) < 900_000, "it fits into one ConfigMap"


@pytest.fixture(params=["cluster", "directory"])
def fresh_store(request: pytest.FixtureRequest, kube: Kube, tmp_path: Path) -> ClaimStore:
    return ConfigMapStore(kube) if request.param == "cluster" else DirectoryStore(str(tmp_path))
