# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 18: one claim that cannot be written, or that is damaged, concerns its own machine. Everything else goes on (L-22)."""

from __future__ import annotations

import contextlib
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError

from ..act.rig import Rig

Build = t.Callable[..., Rig]


def reaped(rig: Rig) -> tuple[list[str], str]:
    """What reap.yml prints as problems, and the worst word of its steps. Its exit status is 2 when there is a problem."""
    try:
        done = rig.reap()
    except TgpError as error:
        return [str(error)], "error"
    return done["plan"]["problems"] + done["problems"], max(
        done["plan"]["outcome"], done["outcome"], key=("ok", "changed", "partial").index
    )


def idle_for_long(rig: Rig) -> None:
    """Two machines without work, due to go at the next reap."""
    rig.provision(nodes=2)
    assert len(rig.machines()) == 2
    with contextlib.suppress(TgpError):
        rig.reap()
    rig.advance(1300)


@pytest.mark.parametrize("status", [409, 422, 403, 500])
def test_a_claim_that_cannot_be_written_keeps_its_own_machine_only(rig: Rig, status: int) -> None:
    idle_for_long(rig)
    first = min(rig.claims())
    if status == 422:
        rig.make_immutable(first)
    else:
        rig.refuse_claim(first, status)

    problems, outcome = reaped(rig)

    left = [one.name for one in rig.machines()]
    assert left == [first], f"machines that still cost money: {left}, told was {problems}"
    assert outcome == "partial"
    assert len(problems) == 1 and first in problems[0]
    assert not any("terminate" in one and rig.claims()[first]["instance_id"] in one for one in rig.writes())

    rig.faults.clear()
    if status == 422:
        return  # it stays so until a person mends it
    reaped(rig)
    assert rig.left() == {}
    rig.check_bill()


def test_a_conflict_is_retried_after_a_fresh_read(rig: Rig) -> None:
    """A label that somebody puts on a claim between our reading and our writing is no reason to leave its machine running."""
    idle_for_long(rig)
    first = min(rig.claims())
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{first}"
    once: list[str] = []

    def label(request: t.Any) -> None:
        if request.method == "PUT" and request.url.path == path and not once:
            once.append(path)
            rig.kube("PATCH", path, {"metadata": {"labels": {"argocd.argoproj.io/instance": "fleet"}}})

    rig.watcher = label
    problems, _outcome = reaped(rig)

    assert once
    assert problems == [], "a conflict was not retried"
    assert rig.left() == {}


@pytest.mark.parametrize("store", ["cluster", "directory"])
def test_a_damaged_claim_concerns_its_own_machine_only(rig: Rig, store: str) -> None:
    def stored(code: t.Any, task: t.Any) -> dict[str, t.Any]:
        task.params["claim_store"] = store
        return t.cast("dict[str, t.Any]", code.run(task))

    rig.call = stored
    idle_for_long(rig)
    names = sorted(one.name for one in rig.machines())
    torn = names[0]
    if store == "cluster":
        rig.damage(torn)
    else:
        (file,) = (rig.folder / "state").rglob(f"{torn}.json")
        file.write_text(file.read_text()[:400])

    for _run in range(3):
        problems, outcome = reaped(rig)
        rig.advance(1300)

        assert [one.name for one in rig.machines()] == [torn], f"machines that still cost money: {problems}"
        assert outcome == "partial"
        assert len(problems) == 1 and torn in problems[0]
    assert torn in rig.nodes()
    assert any(one.hostname == torn for one in rig.box.tailnet.devices())


def test_a_damaged_claim_is_counted_and_nothing_is_launched_above_the_limits(rig: Rig) -> None:
    rig.demo_class["limits"] = {"maxNodes": 2, "maxHourlyCost": "50.0"}
    rig.provision(nodes=2)
    rig.damage(min(rig.claims()))

    with contextlib.suppress(TgpError):
        rig.rent(nodes=3)

    assert rig.creates() == 2
    assert len(rig.claims()) == 1, "the other claim is read"
    answer = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert answer["launch"] == [] and answer["outcome"] == "partial"


def test_a_node_that_refuses_its_annotation_does_not_keep_the_others(rig: Rig) -> None:
    """An admission webhook that refuses one Node: its machine is not noted as idle, the other one ends."""
    rig.provision(nodes=2)
    first = min(rig.claims())
    rig.fault("status", "kubernetes", "PATCH", f"/nodes/{first}$", status=422, times=None)
    for _run in range(3):
        reaped(rig)
        rig.advance(700)

    assert [one.name for one in rig.machines()] == [first], "machines that still cost money"


def test_damaged_findings_stop_no_run(rig: Rig) -> None:
    idle_for_long(rig)
    path = "/api/v1/namespaces/tgp-system/configmaps"
    body = {"metadata": {"name": "tgp-state-findings", "labels": {"tgp.io/state": "true"}}, "data": {"state.json": '{"O1|lam'}}
    rig.kube("POST", path, body)

    problems, _outcome = reaped(rig)

    assert rig.machines() == [], f"machines that still cost money: {problems}"
    assert any("tgp-state-findings" in one for one in problems)


def test_a_notice_says_which_record_it_is(rig: Rig, tmp_path: Path) -> None:
    idle_for_long(rig)
    torn = min(rig.claims())
    rig.damage(torn)
    with contextlib.suppress(TgpError):
        rig.reap()
    notices = [one for one in rig.events() if one["kind"] == "notice"]
    assert [one["notice"] for one in notices] == ["records"], "no notice of a damaged record"
    assert torn in notices[0]["text"]


def test_a_refusal_by_admission_is_told_in_its_own_words(rig: Rig) -> None:
    idle_for_long(rig)
    rig.refuse_claim(min(rig.claims()), 403)
    (problem,), _outcome = reaped(rig)
    assert 'admission webhook "policy.example.com" denied the request' in problem
    assert "ClusterRole" not in problem and "is not allowed to" not in problem, "told as a missing right"


def test_status_says_which_claim_cannot_be_read(rig: Rig) -> None:
    rig.provision(nodes=2)
    torn = min(rig.claims())
    rig.damage(torn)
    told = rig.run("info")
    assert any(torn in one and "cannot be read" in one for one in told["unknown"])
    assert torn in [one["name"] for one in told["machines"]]
