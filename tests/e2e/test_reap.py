# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""reap.yml and destroy.yml: what stays, what goes and when, and that nothing is left afterwards."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest

from tests.fixtures.demo import demo_documents

from .box import NOTHING, Sandbox, bill, by_name

IDLE = 10 * 60 + 60
LAMBDA_STEP = 60  # Lambda bills started minutes


@pytest.fixture(scope="module")
def shared(start: t.Callable[..., Sandbox]) -> Sandbox:
    """A world in which ten idle minutes still take several runs."""
    return start(speed=100)


def names(sandbox: Sandbox) -> set[str]:
    return {one["name"] for one in sandbox.living()}


def reap(sandbox: Sandbox, **more: t.Any) -> t.Any:
    return sandbox.playbook("reap", **more).succeeded()


def test_a_busy_node_stays_the_idle_ones_go_and_nothing_is_left(start: t.Callable[..., Sandbox]) -> None:
    """Several runs in a row: a pod that runs keeps its node, and what is idle ends after ten minutes and not before."""
    sandbox = start(speed=100)
    sandbox.playbook("provision", extra_vars={"nodes": {"training": 2, "own": 1}}).succeeded()
    everybody = names(sandbox)
    busy = min(name for name in everybody if name.startswith("tgp-"))
    sandbox.run_job(busy)

    reap(sandbox)
    assert names(sandbox) == everybody, "nobody has been idle for ten minutes yet"
    sandbox.advance(IDLE)
    reap(sandbox)
    assert names(sandbox) == {busy}
    nodes = sandbox.nodes()
    assert not nodes[busy]["spec"].get("unschedulable")
    assert "rack-1" in nodes, "an own machine keeps its Node"

    sandbox.end_job()
    reap(sandbox)
    assert names(sandbox) == {busy}, "the job has just ended"
    sandbox.advance(IDLE)
    reap(sandbox)
    assert names(sandbox) == set()
    assert sandbox.left() == NOTHING

    world, ledger = sandbox.world(), sandbox.ledger()
    assert sorted(one["name"] for one in ledger) == sorted(everybody), "one line for each machine"
    assert {one["reason"] for one in ledger} <= {"Empty", "Idle"}
    theirs = {one["name"]: one for one in world["machines"]}
    steps = {name: Decimal(machine["price_hour"]) * LAMBDA_STEP / 3600 for name, machine in theirs.items()}
    for line in ledger:
        machine = theirs[line["name"]]
        assert abs(Decimal(line["cost"]) - Decimal(machine["cost"])) <= steps[line["name"]], (line, machine)
    assert abs(bill(ledger) - Decimal(world["totals"]["cost"])) <= sum(steps[name] for name in everybody)


def test_a_price_that_jumped_ends_the_machine(start: t.Callable[..., Sandbox], tmp_path: t.Any) -> None:
    """Shown for less than the pool's limit and billed for far more: given back as soon as the cloud says so, with the reason."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("lambda:\n  - {type: gpu_1x_a10, region: us-east-1, stock: 2, bills: 4.00}\n")
    sandbox = start(speed=100, scenario=scenario)
    documents = demo_documents()
    by_name(documents, "GPUNodeClass", "demo")["spec"]["providers"].pop()
    by_name(documents, "GPUNodePool", "own")["spec"]["template"]["spec"]["requirements"].clear()
    result = sandbox.playbook("provision", documents=documents, extra_vars={"pool": "training"}).failed()
    assert "the price jumped to $4.00/h, above maxHourlyPrice 2.00" in result.words
    assert sandbox.left() == NOTHING
    assert [one["reason"] for one in sandbox.ledger()] == ["PriceJump"]


def test_a_second_reap_of_the_same_moment_changes_nothing(clean: Sandbox) -> None:
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    with clean.moment():
        reap(clean)
        before = clean.writes()
        again = reap(clean)
    assert again.count("changed") == 0
    assert clean.writes() == before


def test_destroy_by_machine_by_pool_and_of_everything(clean: Sandbox) -> None:
    """The three selections of destroy.yml, each of which ends what it names and nothing else."""
    clean.playbook("provision", extra_vars={"nodes": {"training": 3, "own": 1}}).succeeded()
    everybody = names(clean)
    assert len(everybody) == 4
    one = min(everybody - {"rack-1"})
    clean.playbook("destroy", extra_vars={"machine": one}).succeeded()
    assert names(clean) == everybody - {one}
    clean.playbook("destroy", extra_vars={"pool": "own"}).succeeded()
    assert names(clean) == everybody - {one, "rack-1"}
    clean.playbook("destroy", extra_vars={"everything": True}).succeeded()
    assert clean.left() == NOTHING
    assert {line["name"] for line in clean.ledger()} >= everybody


def test_destroy_needs_no_documents(clean: Sandbox) -> None:
    """Claims alone are enough to end machines, without the files that they came from."""
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    clean.playbook("destroy", documents=None, extra_vars={"everything": True}).succeeded()
    assert clean.left() == NOTHING


def test_destroy_names_what_it_does_not_know(clean: Sandbox) -> None:
    assert "There is no machine named nobody" in clean.playbook("destroy", extra_vars={"machine": "nobody"}).failed().words
    assert "Nothing is named to be terminated" in clean.playbook("destroy").failed().words


def test_destroy_rehearsed_changes_nothing(clean: Sandbox) -> None:
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    before = clean.writes()
    result = clean.playbook("destroy", extra_vars={"everything": True}, check=True).succeeded()
    assert clean.writes() == before
    assert min(names(clean)) in result.out


MARKS = (
    {"tgp.io/do-not-disrupt": "true"},
    {"karpenter.sh/do-not-disrupt": "true"},
    {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
    {"tgp.io/hold-until": "2999-01-01T00:00:00Z"},
)


def test_held_nodes_stay(clean: Sandbox) -> None:
    """One machine for each mark and a free one: after the idle time only the free one goes, and the others when their mark goes."""
    clean.playbook("provision", extra_vars={"pool": "training", "nodes": len(MARKS) + 1}).succeeded()
    *held, _free = sorted(names(clean))
    for node, mark in zip(held, MARKS, strict=True):
        clean.annotate(node, mark)
    reap(clean)
    clean.advance(IDLE)
    reap(clean)
    assert names(clean) == set(held)
    for node, mark in zip(held, MARKS, strict=True):
        clean.annotate(node, dict.fromkeys(mark))
    reap(clean)
    assert names(clean) == set()


def test_the_floor_of_a_pool_is_kept(clean: Sandbox) -> None:
    documents = demo_documents()
    by_name(documents, "GPUNodePool", "training")["spec"]["minNodes"] = 1
    clean.playbook("provision", documents=documents, extra_vars={"pool": "training", "nodes": 2}).succeeded()
    reap(clean, documents=documents)
    clean.advance(IDLE)
    reap(clean, documents=documents)
    assert len(names(clean)) == 1
    clean.advance(IDLE)
    reap(clean, documents=documents)
    assert len(names(clean)) == 1


def test_a_node_asked_to_terminate_goes_at_once(clean: Sandbox) -> None:
    clean.playbook("provision", extra_vars={"pool": "training"}).succeeded()
    [node] = names(clean)
    clean.annotate(node, {"tgp.io/terminate": "now"})
    reap(clean)
    assert clean.left() == NOTHING


def test_a_machine_that_never_joins_is_given_back_with_its_reason(clean: Sandbox) -> None:
    """The cloud says it boots for ever; at the end of the registration time it goes, its line says why, and another one comes."""
    documents = demo_documents()
    by_name(documents, "GPUNodePool", "training")["spec"]["registrationTimeout"] = "5m"
    clean.behave({"kind": "never_boots", "cloud": "lambda", "times": 1})
    earlier = {one["name"] for one in clean.ledger()}
    result = clean.playbook("provision", documents=documents, extra_vars={"pool": "training"}).succeeded()
    assert "terminated" in result.words and "replaced" in result.words
    assert (len(names(clean)), clean.left()["claims"]) == (1, 1)
    assert [one["reason"] for one in clean.ledger() if one["name"] not in earlier] == ["FailedJoin"]
    clean.playbook("destroy", documents=documents, extra_vars={"everything": True, "force": True}).succeeded()
    assert clean.left() == NOTHING


def test_L35_a_pool_in_which_no_machine_becomes_usable_is_exit_status_2(clean: Sandbox) -> None:
    """The first machine does not boot and its replacements fail the acceptance test, until the pool is paused: the run says so, nothing of
    them is left, and status.yml shows what is not rented again."""
    documents = demo_documents()
    by_name(documents, "GPUNodePool", "training")["spec"]["acceptance"] = {"test": "vectoradd", "timeout": "30m"}
    clean.behave({"kind": "boot_error", "times": 1}, {"kind": "bad_gpu", "times": 3})
    earlier = {one["name"] for one in clean.ledger()}
    result = clean.playbook("provision", documents=documents, extra_vars={"pool": "training"})
    assert result.rc == 2 and "terminated" in result.words, result.text
    assert "acceptance test vectoradd failed: container gpu-0 ended with exit status 1" in result.words
    assert clean.left() == NOTHING
    assert {one["reason"] for one in clean.ledger() if one["name"] not in earlier} == {"FailedJoin"}
    assert "acceptance test vectoradd failed" in clean.playbook("status", documents=documents).words
    clean.advance(7200)  # the pool is paused after so many


@pytest.mark.parametrize("playbook", ["reap", "autoscale"])
def test_L30_a_provider_that_refuses_us_is_exit_status_2(clean: Sandbox, playbook: str) -> None:
    """Nothing is due, and nothing exists: a revoked key is noticed all the same."""
    clean.faults({"kind": "status", "service": "lambda", "method": "GET", "path": "/instances$", "status": 401, "times": None})
    failed = clean.playbook(playbook)
    assert failed.rc == 2 and "The machines of lambda could not be listed" in failed.words
    assert "unknown: lambda" in clean.playbook("status").succeeded().words
    clean.clear_faults()
    clean.playbook(playbook).succeeded()


def test_L22_a_damaged_claim_is_exit_status_2_and_other_machines_go(clean: Sandbox) -> None:
    clean.playbook("provision", extra_vars={"pool": "training", "nodes": 2}).succeeded()
    torn = min(names(clean))
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{torn}"
    whole = clean.get(path)["data"]["claim.json"]

    def write(text: str) -> None:
        body = {"data": {"claim.json": text}}
        clean.kube.patch(path, json=body, headers={"content-type": "application/merge-patch+json"}).raise_for_status()

    write(whole[:300])
    failed = clean.playbook("destroy", extra_vars={"everything": True, "force": True})
    assert failed.rc == 2 and torn in failed.words and "cannot be read" in failed.words
    assert names(clean) == {torn}
    write(whole)
