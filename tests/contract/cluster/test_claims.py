# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One contract, three stores: claims are created and swapped, never lost, never half read; the ledger takes each line once."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
import threading
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError, BadShape, Conflict, InvalidInput, LostAnswer
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Phase
from ansible_collections.tgp.gpu.plugins.module_utils.store import configmap
from ansible_collections.tgp.gpu.plugins.module_utils.store.configmap import ConfigMapStore
from ansible_collections.tgp.gpu.plugins.module_utils.store.directory import DirectoryStore
from ansible_collections.tgp.gpu.plugins.module_utils.store.node_claim import NodeClaimStore
from ansible_collections.tgp.gpu.plugins.module_utils.store.open_store import open_store
from ansible_collections.tgp.gpu.plugins.module_utils.store.records import ClaimStore, decode_claim

from schemas.crds import claim_definition

from .conftest import UID, Cluster, make_claim, make_task

Fresh = t.Callable[[], ClaimStore]


def install(cluster: Cluster) -> None:
    """The kind of claims."""
    cluster.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", claim_definition())


@pytest.fixture(params=["cluster", "crd", "directory"])
def fresh(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Fresh:
    """Opens the same store again, as another run would."""
    if request.param == "cluster":
        return lambda: ConfigMapStore(cluster.client())
    if request.param == "crd":
        install(cluster)
        return lambda: NodeClaimStore(cluster.client())
    return lambda: DirectoryStore(str(tmp_path / "state"))


def test_nothing_is_there_at_first(fresh: Fresh) -> None:
    store = fresh()
    assert store.claims() == [] and store.claim("tgp-x") is None
    assert store.read_state("findings") == {} and store.ledger_lines() == []


def test_L02_a_claim_comes_back_as_it_was_written(fresh: Fresh) -> None:
    written = fresh().write(make_claim(price_paid=Decimal("0.7512"), ids_seen=("501", "502"), phase=Phase.BOOTING))
    assert written.version
    (read,) = fresh().claims()
    assert read == written == fresh().claim(written.name)
    assert read.price_paid == Decimal("0.7512") and read.phase is Phase.BOOTING


def test_claims_are_sorted_and_many(fresh: Fresh) -> None:
    store = fresh()
    names = [f"tgp-a1b2c3d4-pool-{number:05d}" for number in range(30)]
    for name in reversed(names):
        store.write(make_claim(name))
    assert [claim.name for claim in fresh().claims()] == names


def test_a_second_creation_is_a_conflict(fresh: Fresh) -> None:
    fresh().write(make_claim())
    with pytest.raises(Conflict):
        fresh().write(make_claim())


def test_a_stale_writer_is_refused_and_changes_nothing(fresh: Fresh) -> None:
    first = fresh().write(make_claim())
    second = fresh().write(dataclasses.replace(first, instance_id="501"))
    with pytest.raises(Conflict):
        fresh().write(dataclasses.replace(first, instance_id="502"))
    with pytest.raises(Conflict):
        fresh().remove(first)
    (read,) = fresh().claims()
    assert read == second and read.instance_id == "501"


def test_a_claim_is_read_anew_once_another_writer_has_changed_it(fresh: Fresh) -> None:
    """A run lists all claims more than once."""
    store = fresh()
    mine = [store.write(make_claim(f"tgp-a1b2c3d4-pool-{number:05d}")) for number in range(3)]
    assert store.claims() == mine == store.claims()
    theirs = fresh().write(dataclasses.replace(mine[1], instance_id="501"))
    fresh().remove(mine[2])
    assert store.claims() == [mine[0], theirs] == fresh().claims()


def test_a_claim_of_a_version_that_is_known_is_not_read_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ConfigMapStore(cluster.client())
    for number in range(3):
        store.write(make_claim(f"tgp-a1b2c3d4-pool-{number:05d}"))
    other, decoded = ConfigMapStore(cluster.client()), []
    monkeypatch.setattr(configmap, "decode_claim", lambda *given: decoded.append(given[2]) or decode_claim(*given))
    assert other.claims() == other.claims() == store.claims()
    assert len(decoded) == 3


def test_remove_is_final_and_may_be_repeated(fresh: Fresh) -> None:
    claim = fresh().write(make_claim())
    fresh().remove(claim)
    fresh().remove(claim)
    assert fresh().claims() == []
    with pytest.raises(Conflict):
        fresh().write(claim)


def test_of_many_writers_one_wins_each_version(fresh: Fresh) -> None:
    claim = fresh().write(make_claim())
    won: list[str] = []

    def write(number: int) -> None:
        try:
            won.append(fresh().write(dataclasses.replace(claim, instance_id=str(number))).instance_id)
        except Conflict:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and fresh().claims()[0].instance_id == won[0]


def test_state_is_replaced_as_a_whole(fresh: Fresh) -> None:
    fresh().write_state("findings", {"a": "2026-08-20T12:00:00Z", "b": {"n": 1}})
    assert fresh().read_state("findings") == {"a": "2026-08-20T12:00:00Z", "b": {"n": 1}}
    fresh().write_state("findings", {"c": []})
    assert fresh().read_state("findings") == {"c": []} and fresh().read_state("blocklist") == {}


def test_L02_a_ledger_line_is_written_once_whoever_comes_again(fresh: Fresh) -> None:
    store = fresh()
    assert store.ledger({"name": "tgp-a1b2c3d4-p-00000", "cost": "0.10"}) is True
    assert store.ledger({"name": "tgp-a1b2c3d4-p-00000", "cost": "9.99"}) is False
    assert fresh().ledger({"name": "tgp-a1b2c3d4-p-00000", "cost": "9.99"}) is False
    assert fresh().ledger({"name": "tgp-a1b2c3d4-p-00000", "key": "tgp-a1b2c3d4-p-00000.502", "reason": "Duplicate"}) is True
    lines = sorted(fresh().ledger_lines(), key=lambda line: str(line.get("key")))
    assert [line.get("cost") for line in lines] == ["0.10", None]


def test_the_ledger_takes_lines_from_many_at_once(fresh: Fresh) -> None:
    stores = [fresh() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda store=store, part=part: [store.ledger({"name": f"tgp-{part}-{n}"}) for n in range(6)])
        for part, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fresh().ledger_lines()) == 24


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "UPPER", ".hidden", "a" * 300])
def test_names_that_lead_elsewhere_are_refused(fresh: Fresh, name: str) -> None:
    with pytest.raises(InvalidInput):
        fresh().write(make_claim(name))
    with pytest.raises(InvalidInput):
        fresh().read_state(name)


# ---- odd records


DAMAGES = ["", "{", '{"name": "x"}', "[]", "null", "torn: {yes", '"text"']


@pytest.mark.parametrize("text", DAMAGES)
def test_a_torn_configmap_hides_no_other_claim(cluster: Cluster, kube: Kube, text: str) -> None:
    store = ConfigMapStore(kube)
    other, claim = store.write(make_claim("tgp-a1b2c3d4-training-other")), store.write(make_claim())
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim.name}"
    cluster.must("PATCH", path, {"data": {"claim.json": text}})
    claims, (damaged,) = ConfigMapStore(kube).claim_records()
    assert claims == store.claims() == [other]
    assert (damaged.name, damaged.pool) == (claim.name, claim.pool) and damaged.where.endswith(f"tgp-claim-{claim.name}")
    with pytest.raises(BadShape, match=f"tgp-claim-{claim.name}"):
        store.claim(claim.name)


def test_a_claim_under_another_name_is_damaged(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    claim = store.write(make_claim())
    body = cluster.read(f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim.name}")
    assert body is not None
    body["metadata"] = {"name": "tgp-claim-other", "labels": body["metadata"]["labels"]}
    cluster.must("POST", "/api/v1/namespaces/tgp-system/configmaps", body)
    claims, (damaged,) = store.claim_records()
    assert claims == [claim] and damaged.name == "other" and "it is the claim of" in damaged.problem


def test_a_claim_of_another_version_tells_what_it_can(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    claim = store.write(make_claim())
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim.name}"
    text = {
        "record_version": 9,
        "name": claim.name,
        "pool": claim.pool,
        "node_class": "demo",
        "cloud": "lambda",
        "instance_id": "i-7",
    }
    cluster.must("PATCH", path, {"data": {"claim.json": json.dumps({**text, "ids_seen": ["i-6", "i-7"]})}})
    claims, (damaged,) = store.claim_records()
    assert claims == [] and "version 9" in damaged.problem
    assert (damaged.node_class, damaged.cloud, damaged.ids) == ("demo", "lambda", ("i-7", "i-6"))


def test_L22_a_change_of_others_that_does_not_contradict_is_kept(fresh: Fresh) -> None:
    store = fresh()
    claim = store.write(make_claim())
    theirs = fresh().claims()[0]
    assert theirs == claim
    other = fresh()
    (read,) = other.claims()
    other.write(dataclasses.replace(read, instance_id="501"))
    written = store.write(dataclasses.replace(claim, ip="192.0.2.7"))
    assert (written.instance_id, written.ip) == ("501", "192.0.2.7")
    assert fresh().claims() == [written]
    store.remove(written)


def test_L22_two_decisions_about_one_machine_contradict(fresh: Fresh) -> None:
    store, other = fresh(), fresh()
    claim = store.write(make_claim())
    (read,) = other.claims()
    second = other.write(dataclasses.replace(read, instance_id="501"))
    with pytest.raises(Conflict):
        store.write(dataclasses.replace(claim, launch_started=claim.created))
    with pytest.raises(Conflict):
        store.remove(claim)
    assert fresh().claims() == [second]


def test_L22_a_claim_that_says_something_else_by_now_is_not_removed(fresh: Fresh) -> None:
    store, other = fresh(), fresh()
    claim = store.write(make_claim())
    (read,) = other.claims()
    second = other.write(dataclasses.replace(read, instance_id="501"))
    with pytest.raises(Conflict):
        store.remove(claim)
    assert fresh().claims() == [second]


def test_L22_an_immutable_claim_is_an_error_of_its_own(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    claim = store.write(make_claim())
    cluster.must("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim.name}", {"immutable": True})
    with pytest.raises(ApiError, match="immutable"):
        store.write(dataclasses.replace(claim, ip="192.0.2.7"))


@pytest.mark.parametrize("text", DAMAGES)
def test_a_torn_file_hides_no_other_claim(tmp_path: Path, text: str) -> None:
    store = DirectoryStore(str(tmp_path))
    other, claim = store.write(make_claim("tgp-a1b2c3d4-training-other")), store.write(make_claim())
    (tmp_path / "claims" / f"{claim.name}.json").write_text(text)
    claims, (damaged,) = store.claim_records()
    assert claims == store.claims() == [other] and damaged.name == claim.name
    assert damaged.where == str(tmp_path / "claims" / f"{claim.name}.json")
    with pytest.raises(BadShape, match=f"{claim.name}.json"):
        store.claim(claim.name)


def test_a_folder_that_is_there_no_more_is_an_error_and_never_empty(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path / "store"))
    claim = store.write(make_claim())
    shutil.rmtree(tmp_path / "store")
    verbs: list[t.Callable[[], t.Any]] = [
        store.claims, store.ledger_records, lambda: store.remove(claim), lambda: store.write(claim), lambda: store.ledger({"name": "tgp-a"}),
        lambda: store.write_state("x", {}), lambda: store.claim(claim.name), lambda: store.read_state("x"),
    ]  # fmt: skip
    for verb in verbs:
        with pytest.raises(ApiError, match="cannot be used: No such file or directory"):
            verb()


def test_files_are_private_and_no_half_file_counts(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    claim = store.write(make_claim())
    path = tmp_path / "claims" / f"{claim.name}.json"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    (tmp_path / "claims" / ".new-abc").write_text("{")  # left by a process that was killed before the rename
    assert len(store.claims()) == 1
    (tmp_path / "claims" / "notes.txt").write_text("hello")
    claims, (damaged,) = store.claim_records()
    assert len(claims) == 1 and damaged.where.endswith("notes.txt") and "only .json files" in damaged.problem


# ---- the cluster store


def test_labels_and_annotation_of_a_claim(cluster: Cluster, kube: Kube) -> None:
    claim = ConfigMapStore(kube).write(make_claim(pool="a-namespace/" + "p" * 60))
    raw = cluster.read(f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim.name}")
    assert raw is not None
    labels = raw["metadata"]["labels"]
    assert labels["tgp.io/claim"] == "true" and labels["tgp.io/nodepool"].startswith("a-namespace.ppp")
    assert len(labels["tgp.io/nodepool"]) <= 63 and raw["metadata"]["annotations"]["tgp.io/nodepool"] == claim.pool


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_write_whose_answer_was_lost_is_recognised(cluster: Cluster, kube: Kube, method: str) -> None:
    store = ConfigMapStore(kube)
    claim = make_claim()
    if method == "PUT":
        claim = dataclasses.replace(store.write(claim), instance_id="501")
    else:
        store.write_state("x", {})
    cluster.faults.add({"kind": "lost_after", "method": method, "path": "tgp-claim|configmaps$"})
    written = store.write(claim)
    assert ConfigMapStore(cluster.client()).claims() == [written]


def test_what_another_wrote_is_not_taken_for_a_write_whose_answer_was_lost(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    claim = store.write(make_claim())
    cluster.faults.add({"kind": "lost_before", "method": "PUT", "path": "tgp-claim"})
    with pytest.raises(LostAnswer):
        store.write(dataclasses.replace(claim, instance_id="501"))
    assert ConfigMapStore(cluster.client()).claims() == [claim]


def test_a_write_that_did_not_arrive_fails(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    store.write_state("x", {})
    cluster.faults.add({"kind": "status", "status": 500, "method": "POST", "path": "configmaps$"})
    with pytest.raises(Exception, match="500"):
        store.write(make_claim())
    assert store.claims() == []


def test_the_ledger_goes_on_in_a_new_part_when_one_is_full(cluster: Cluster, kube: Kube) -> None:
    store = ConfigMapStore(kube)
    for number in range(8):
        assert store.ledger({"name": f"tgp-{number}", "note": "x" * 10_000})
    parts = [
        item["metadata"]["name"]
        for item in kube.list("/api/v1/namespaces/tgp-system/configmaps", {"labelSelector": "tgp.io/ledger"})
    ]
    assert parts == ["tgp-ledger-00000", "tgp-ledger-00001"] and len(store.ledger_lines()) == 8
    assert ConfigMapStore(cluster.client()).ledger({"name": "tgp-0"}) is False
    assert [part.place for part in store.ledger_parts()] == ["tgp-ledger-00000"], "the newest takes the next line"


def test_open_store_by_options(kube: Kube, tmp_path: Path) -> None:
    assert isinstance(open_store(make_task(), kube), ConfigMapStore)
    options = {"claim_store": "directory", "state_dir": str(tmp_path)}
    open_store(make_task(**options), kube).write(make_claim())
    assert (tmp_path / UID[:8] / "claims").is_dir()
    assert len(open_store(make_task(**options, cluster_id=UID[:8]), None).claims()) == 1
    with pytest.raises(InvalidInput, match="cluster_id must be set"):
        open_store(make_task(**options), None)
    with pytest.raises(InvalidInput, match="not 8 lower-case"):
        open_store(make_task(**options, cluster_id="XYZ"), None)
    with pytest.raises(InvalidInput, match="needs a cluster"):
        open_store(make_task(), None)
