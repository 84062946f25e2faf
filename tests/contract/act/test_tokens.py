# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap tokens that a killed run, or a hand in the records, left without a claim (L-12, O13)."""

from __future__ import annotations

import base64
import json
import typing as t

import pytest

from .rig import CREATE, Rig
from .test_gcp import OFFERS, build_gcp

Build = t.Callable[..., Rig]
TOKENS = "configmaps/tgp-state-tokens"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
LAMBDA = [{"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 4, "boot": 20}]
NOTED = 4  # writes until a token is made: key, the list of tokens (put, which finds none, then made), token


def foreign(rig: Rig, token_id: str = "kubadm") -> str:
    """A token as the cluster's administrator makes them."""
    end = base64.b64encode(b"2099-01-01T00:00:00Z").decode()
    meta = {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"}
    rig.kube("POST", SECRETS, {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "data": {"expiration": end}})
    return meta["name"]


def forget_id(rig: Rig) -> str:
    """Somebody edits our record: the claim does not know its token any more. Its id."""
    claim = rig.claim()
    (name,) = [one["metadata"]["name"] for one in rig.configmaps("tgp.io/claim")]
    text = json.dumps({**claim, "token_id": ""})
    rig.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/{name}", {"data": {"claim.json": text}})
    return t.cast(str, claim["token_id"])


def lose_claims(rig: Rig) -> None:
    for one in rig.configmaps("tgp.io/claim"):
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/{one['metadata']['name']}")


def killed_before_the_note(rig: Rig) -> None:
    """A run that dies when its token exists and the claim does not know it."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    with rig.killed_at(NOTED, after=True):
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert len(rig.tokens()) == 1 and not rig.claim()["token_id"]


def about_tokens(done: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(one["result"], one["message"]) for one in done["machines"] if one["message"].startswith("token: ")]


def test_L12_O13_a_token_is_noted_before_it_is_made_and_forgotten_when_it_is_deleted(rig: Rig) -> None:
    rig.rent()
    claim, writes = rig.claim(), rig.writes()
    assert list(rig.state("tokens")) == [claim["token_id"]]
    assert rig.state("tokens")[claim["token_id"]]["machine"] == claim["name"]
    noted = next(place for place, line in enumerate(writes) if line.startswith("kubernetes POST") and line.endswith("configmaps"))
    made = next(place for place, line in enumerate(writes) if line.endswith(f"POST {SECRETS}"))
    assert noted < made
    rig.join()
    assert rig.tokens() == [] and rig.state("tokens") == {}
    rig.reap()  # it notes since when the node is idle
    before = len(rig.writes())
    assert not rig.reap()["changed"] and rig.writes()[before:] == [], "nothing to do, nothing written"


def test_L12_O13_a_token_that_nobody_knows_goes_in_the_second_run(rig: Rig) -> None:
    rig.rent()
    theirs, lost = foreign(rig), forget_id(rig)
    rig.advance(540)
    assert not about_tokens(rig.reap()) and len(rig.tokens()) == 2
    rig.advance(120)
    assert about_tokens(rig.reap()) == [("removed", "token: Orphan")]
    assert rig.tokens() == [theirs] and lost not in rig.state("tokens")
    before = len(rig.writes())
    assert not about_tokens(rig.reap()) and not [line for line in rig.writes()[before:] if "secrets" in line or TOKENS in line]


def test_L12_O13_many_tokens_are_checked_against_one_list_of_claims(build: t.Callable[..., Rig]) -> None:
    made = {}
    for count in (1, 3):  # of four the mass guard would keep all
        rig = build()
        rig.demo_class["limits"] = {"maxNodes": 4, "maxHourlyCost": "100.00"}
        rig.rent(nodes=count)
        for one in rig.configmaps("tgp.io/claim"):
            text = json.dumps({**json.loads(one["data"]["claim.json"]), "token_id": ""})
            rig.kube("PATCH", f"/api/v1/namespaces/tgp-system/configmaps/{one['metadata']['name']}", {"data": {"claim.json": text}})
        rig.advance(660)
        rig.reap()
        rig.advance(120)
        plan = rig.plan("reap")
        reads: list[str] = []
        rig.watcher = lambda request, reads=reads: (  # type: ignore[misc]
            reads.append(request.url.path) if request.method == "GET" and request.url.host == "kube.test" else None
        )
        done = rig.run("teardown", plan["run_id"], orphans=plan["orphans"])
        rig.unlock(plan["run_id"])
        assert about_tokens(done) == [("removed", "token: Orphan")] * count and rig.tokens() == []
        made[count] = len([path for path in reads if "leases" not in path])
    assert made[1] == made[3]


def test_L12_O13_a_token_whose_claim_was_deleted_goes_with_its_machine(rig: Rig) -> None:
    rig.rent()
    lose_claims(rig)
    rig.advance(900)
    rig.reap()
    assert len(rig.tokens()) == 1 and len(rig.claims()) == 1  # its device is online: adopted, with its time to join
    rig.advance(120)
    assert about_tokens(rig.reap()) == [("removed", "token: Orphan")]
    rig.advance(1800)
    rig.reap()
    assert rig.left() == {} and rig.state("tokens") == {}


def test_L12_O13_a_rehearsal_touches_no_token_and_shows_it(rig: Rig) -> None:
    rig.rent()
    lost = forget_id(rig)
    rig.advance(900)
    rig.reap()
    rig.advance(120)
    plan = rig.plan("reap", check=True)
    assert [one["target"] for one in plan["orphans"]] == [lost]
    assert f"token {lost} (Orphan)" in plan["diff"]["before"]
    assert len(rig.tokens()) == 1


def test_L12_O13_a_killed_run_s_token_is_taken_back_by_the_next_launch(rig: Rig) -> None:
    killed_before_the_note(rig)
    old = rig.tokens()
    rig.rent()
    assert rig.tokens() == [f"bootstrap-token-{rig.claim()['token_id']}"] != old
    assert list(rig.state("tokens")) == [rig.claim()["token_id"]]


def test_L12_O13_a_killed_run_s_token_is_taken_back_by_a_teardown(rig: Rig) -> None:
    killed_before_the_note(rig)
    rig.destroy()
    assert rig.left() == {"keys": 1} and rig.state("tokens") == {}, "its key is found by its name, once the claim is gone"
    for pause in (600, 61):
        rig.advance(pause)
        rig.reap()
    assert rig.left() == {}


@pytest.mark.parametrize("fault", [{"kind": "status", "status": 500}, {"kind": "status", "status": 403}, {"kind": "truncate"}])
def test_L12_a_list_of_tokens_that_cannot_be_read_is_not_empty(rig: Rig, fault: dict[str, t.Any]) -> None:
    rig.rent()
    lost = forget_id(rig)
    rig.advance(900)
    rig.reap()
    rig.advance(120)
    rig.fault(fault["kind"], "kubernetes", "GET", TOKENS, times=None, **{k: v for k, v in fault.items() if k != "kind"})
    done = rig.reap()
    assert not about_tokens(done) and len(rig.tokens()) == 1
    assert any("list of bootstrap tokens could not be read" in text for text in rig.warnings)
    assert rig.run("info")["totals"]["tokens"] is None
    assert "our list of bootstrap tokens could not be read" in rig.run("info")["unknown"]
    rig.faults.clear()
    assert f"Token||{lost}" in rig.state("findings"), "what was seen is not forgotten"
    assert about_tokens(rig.reap()) == [("removed", "token: Orphan")] and rig.tokens() == []


@pytest.mark.parametrize(
    "text", ["{}}", '{"abc123": "x"}', '{"abc123": {"machine": "m", "expires": "soon"}}', '{"../etc": {"machine": "m"}}']
)
def test_L12_an_odd_list_of_tokens_is_never_overwritten_and_nothing_is_rented(rig: Rig, text: str) -> None:
    rig.rent()
    rig.kube("PATCH", f"/api/v1/namespaces/tgp-system/{TOKENS}", {"data": {"state.json": text}})
    kept = rig.tokens()
    done = rig.rent(nodes=2)
    assert rig.creates() == 1 and rig.tokens() == kept
    assert any("tgp-state-tokens" in one for one in done["problems"]), done["problems"]
    (raw,) = [one for one in rig.configmaps("tgp.io/state") if one["metadata"]["name"] == "tgp-state-tokens"]
    assert raw["data"]["state.json"] == text


def test_L12_only_tokens_on_our_list_are_deleted(rig: Rig) -> None:
    """Whatever a plan says: a token of the cluster's own is never touched, nor one of another machine, nor one that is in use."""
    rig.rent()
    theirs, claim = foreign(rig), rig.claim()
    asked = [("kubadm", claim["name"]), (claim["token_id"], "somebody-else"), (claim["token_id"], claim["name"])]
    orphans = [
        {"kind": "delete_token", "name": name, "target": target, "uid": "", "reason": "Orphan", "cloud": ""}
        for target, name in asked
    ]
    plan = rig.plan("reap")
    done = rig.run("teardown", plan["run_id"], orphans=orphans)
    rig.unlock(plan["run_id"])
    assert [one["message"].partition(":")[2].partition(":")[0].strip() for one in done["machines"]] == ["kept"] * 3
    assert sorted(rig.tokens()) == sorted([theirs, f"bootstrap-token-{claim['token_id']}"])


def test_L12_an_id_that_is_somebody_else_s_never_comes_on_our_list(rig: Rig) -> None:
    rig.fault("status", "kubernetes", "POST", f"{SECRETS}$", status=409, times=1)
    rig.rent()
    assert rig.creates() == 1 and list(rig.state("tokens")) == [rig.claim()["token_id"]]
    assert len([line for line in rig.writes() if CREATE in line]) == 1


def test_L12_a_token_that_cannot_be_taken_off_the_list_hinders_nothing(rig: Rig) -> None:
    rig.rent()
    rig.fault("status", "kubernetes", "PUT", TOKENS, status=500, times=None)
    assert [one["result"] for one in rig.join()["machines"]] == ["ready"]
    assert rig.tokens() == [] and any("could not be taken off our list" in text for text in rig.warnings)


def test_L12_the_end_of_many_machines_reads_the_list_of_tokens_once(build: t.Callable[..., Rig]) -> None:
    rig = build()
    rig.rent(nodes=3)
    rig.join()
    reads: list[str] = []
    rig.watcher = lambda request: (
        reads.append(request.url.path) if request.method == "GET" and request.url.path.endswith("tgp-state-tokens") else None
    )
    plan = rig.plan("destroy", all=True)
    before = len(reads)
    rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert len(rig.ledger()) == 3 and len(reads) - before == 1


def test_L12_the_status_counts_tokens(rig: Rig) -> None:
    rig.rent()
    assert rig.run("info")["totals"]["tokens"] == 1
    assert any("1 keys, 1 tokens" in line for line in rig.lines)
    rig.advance(3601)
    assert rig.run("info")["totals"]["tokens"] == 0, "its hour is over"


def test_L12_an_idle_reap_costs_one_reading_more(rig: Rig) -> None:
    rig.provision()
    seen: list[str] = []
    rig.watcher = lambda request: seen.append(f"{request.method} {request.url.path}")
    rig.plan("reap", check=True)
    assert len([one for one in seen if TOKENS in one]) == 1 and not [one for one in seen if one.endswith("/secrets")]


# ---- the lane of the machine that is rented in the end


def group_of(rig: Rig) -> str:
    """Of its one bootstrap token, which stands alone on our list of tokens and is the claim's."""
    _status, answer = rig.api.request("GET", SECRETS)
    (secret,) = [one for one in answer["items"] if one.get("type") == "bootstrap.kubernetes.io/token"]
    assert secret["metadata"]["name"] == f"bootstrap-token-{rig.claim()['token_id']}" and list(rig.state("tokens")) == [
        rig.claim()["token_id"]
    ]
    return base64.b64decode(secret["data"]["auth-extra-groups"]).decode()


@pytest.mark.parametrize(
    ("stock", "lane", "group"),
    [(1, "talos", "system:bootstrappers:nodes"), (0, "kubelet", "system:bootstrappers:tgp")],
    ids=["the first choice", "another lane"],
)
def test_L02_the_token_is_that_of_the_lane_of_the_rented_machine(build: Build, stock: int, lane: str, group: str) -> None:
    """A Talos cluster approves every name that a token of its own group asks for, so a machine of lane kubelet must not get one."""
    rig = build_gcp(build, "talos", offers=[{**OFFERS[1], "stock": stock}], maxHourlyPrice="2.00", others={"lambda": LAMBDA})
    rig.training["template"]["spec"]["lanes"] = ["talos", "kubelet"]
    rig.demo_class["providers"].append({"name": "lambda"})
    rig.demo_class["instanceRequirements"] = {}
    rig.rent()
    assert (rig.claim()["lane"], rig.claim()["cloud"]) == (lane, "gcp" if stock else "lambda")
    assert group_of(rig) == group
    assert [one["result"] for one in rig.join()["machines"]] == ["ready"]
    assert rig.tokens() == [] and rig.state("tokens") == {}
