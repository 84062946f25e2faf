# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans that are saved, read again and applied by the modules (L-22)."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, Locked

from sandbox.market import set_price

from .rig import CREATE, Rig

IDLE = 11 * 60
CAPACITY = "instance-operations/launch/insufficient-capacity"


@pytest.fixture
def file(rig: Rig) -> Path:
    return rig.folder / "plan.json"


def save(rig: Rig, file: Path, mode: str = "everything", **params: t.Any) -> dict[str, t.Any]:
    params.setdefault("nodes", {"training": 1, "own": 0})
    return rig.plan(mode, save_to=str(file), **params)


def rehearse(rig: Rig, file: Path) -> dict[str, t.Any]:
    return rig.run("apply", check=True, file=str(file))


def apply(rig: Rig, file: Path, **params: t.Any) -> dict[str, t.Any]:
    """What apply.yml does, without waiting for the machines; the result of fleet_apply with ``machines`` of both steps."""
    found = rig.run("apply", file=str(file), **params)
    machines: list[dict[str, t.Any]] = []
    try:
        if found["launch"]:
            machines += rig.run("launch", found["run_id"], names=found["launch"])["machines"]
        if found["destroy"] or found["orphans"]:
            more = {"names": found["destroy"], "only_named": True, "orphans": found["orphans"]}
            machines += rig.run("teardown", found["run_id"], **more)["machines"]
    finally:
        rig.unlock(found["run_id"])
    return {**found, "machines": machines}


def results(found: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(one["action"], one["result"]) for one in found["steps"]]


def idle_machine(rig: Rig) -> str:
    """A machine of pool training that has been idle for long enough."""
    rig.provision()
    rig.reap()
    rig.advance(IDLE)
    return rig.machine().name


# ---- saving


def test_L22_saving_a_plan_changes_nothing_and_is_for_the_owner_alone(rig: Rig, file: Path) -> None:
    before = rig.writes()
    found = save(rig, file)
    assert (found["changed"], found["outcome"], len(found["launch"])) == (True, "ok", 1)
    assert rig.writes() == before and rig.claims() == {}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in rig.folder.glob(".new-*")] == []
    content = json.loads(file.read_text())
    assert [one["kind"] for one in content["steps"]] == ["launch"] and content["cluster_id"] == found["launch"][0].split("-")[1]
    text = file.read_text()
    secrets = [one for one in (*rig.world.secrets.values(), *_strings(rig.box.talos.bundle())) if len(one) >= 12]
    assert secrets and [one for one in secrets if one in text] == []
    rig.unlock(rig.plan("reap")["run_id"])  # no lock was left


def _strings(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        try:
            inner = yaml.safe_load(value)
        except yaml.YAMLError:
            inner = value
        if isinstance(inner, (dict, list)):
            yield from _strings(inner)
        elif " " not in value:
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def test_L22_saving_in_check_mode_writes_no_file(rig: Rig, file: Path) -> None:
    assert save(rig, file, check=True)["launch"]
    assert not file.exists()


def test_L22_the_same_plan_saved_again_is_no_change(rig: Rig, file: Path) -> None:
    assert save(rig, file, nodes=0)["changed"]
    made = json.loads(file.read_text())["made_at"]
    rig.advance(60)
    assert not save(rig, file, nodes=0)["changed"]
    assert json.loads(file.read_text())["made_at"] > made, "its age begins anew"


def test_L22_a_place_that_cannot_be_written_is_named(rig: Rig) -> None:
    (rig.folder / "taken").write_text("")
    with pytest.raises(InvalidInput, match=r"taken/plan\.json cannot be written"):
        save(rig, rig.folder / "taken" / "plan.json")


@pytest.mark.parametrize("mode", ["provision", "reap", "everything", "destroy"])
def test_L22_check_mode_is_the_plan(rig: Rig, file: Path, mode: str) -> None:
    """The same code and the same text, in a world in which there is something to rent and something to give back."""
    rig.demo_class["limits"] = {"maxNodes": 3, "maxHourlyCost": "20.00"}
    idle_machine(rig)
    params: dict[str, t.Any] = {"run_id": "same-run", "all": mode == "destroy"}
    if mode in ("provision", "everything"):
        params["nodes"] = {"training": 1, "own": 1}
    rig.lines.clear()
    rehearsed = rig.run("plan", mode=mode, check=True, **params)
    text = _timeless(rig.lines)
    rig.lines.clear()
    saved = rig.run("plan", mode=mode, save_to=str(file), **params)
    assert len(text) > 3 and _timeless(rig.lines[:-1]) == text and rig.lines[-1].startswith(f"  saved to {file}")
    assert _timeless(map(str, rehearsed["plan"])) == _timeless(map(str, saved["plan"])) and rehearsed["summary"] == saved["summary"]
    steps = json.loads(file.read_text())["steps"]
    shown = [(one["action"], one["name"]) for one in rehearsed["plan"] if one["action"] not in ("update", "annotate", "report")]
    assert [(one["kind"], one["name"]) for one in steps] == shown != []
    assert re.search(r"now \$\S+/h \(\$\S+/day\), then \$\S+/h \(\$\S+/day\)", "\n".join(text))
    costs = json.loads(file.read_text())["costs"]
    assert costs == {
        "hour_now": saved["summary"]["cost_hour_now"],
        "hour_after": saved["summary"]["cost_hour_after"],
        "day_now": saved["summary"]["cost_day_now"],
        "day_after": saved["summary"]["cost_day_after"],
    }


def _timeless(lines: t.Iterable[str]) -> list[str]:
    """Without how long something has been idle, and how wide its column is for that: some of the world's seconds pass between two looks."""
    return [re.sub(r" {2,}|-{2,}", "  ", re.sub(r"idle for \w+", "idle", line)).rstrip() for line in lines]


def test_L22_diff_shows_the_machines_before_and_after(rig: Rig) -> None:
    """What a person would call a change, and not the fields of our records."""
    new = rig.plan("provision", check=True, pools=["training"], nodes=1)
    assert new["diff"]["before"] == ""
    (name,) = new["launch"]
    assert new["diff"]["after"].splitlines() == [
        f"machine {name} (launch: Wanted)",
        "  pool: default/training",
        "  lane: kubelet",
        "  phase: Pending",
        "  offer: lambda gpu_1x_rtx6000 in us-west-1, 1 × QUADRO-RTX6000, $0.69/h",
    ]
    gone = idle_machine(rig)
    going = rig.plan("reap", check=True)["diff"]
    head = f"machine {gone} (destroy: Empty)"
    assert going["after"].splitlines() == [head, "  terminated for: Empty"]
    assert going["before"].startswith(f"{head}\n  pool: default/training\n") and "gpu_1x_rtx6000" in going["before"]


# ---- applying


def test_L22_a_saved_plan_is_applied_and_a_second_time_changes_nothing(rig: Rig, file: Path) -> None:
    planned = save(rig, file)
    rehearsed = rehearse(rig, file)
    assert (results(rehearsed), rehearsed["changed"], rig.claims()) == ([("launch", "applied")], True, {})
    found = apply(rig, file)
    assert (found["outcome"], found["problems"], found["same_world"]) == ("ok", [], True)
    assert found["plan_run_id"] == planned["run_id"] != found["run_id"]
    assert [one.name for one in rig.machines()] == planned["launch"] == found["launch"]
    rig.join()
    assert results(apply(rig, file)) == [("launch", "done")], "and notes that the machine is idle"
    writes = rig.writes()
    again = apply(rig, file)
    assert (results(again), again["changed"], again["problems"], again["outcome"]) == ([("launch", "done")], False, [], "ok")
    assert rig.writes() == writes and rig.creates() == 1


def test_L22_a_machine_that_was_given_back_is_not_launched_again(rig: Rig, file: Path) -> None:
    save(rig, file)
    apply(rig, file)
    rig.join()
    rig.destroy()
    again = apply(rig, file)
    assert [one["why"] for one in again["steps"]] == ["was launched and terminated already"]
    assert (rig.machines(), rig.creates()) == ([], 1)


def test_L22_an_own_machine_is_not_switched_on_again_by_an_old_plan(rig: Rig, file: Path) -> None:
    save(rig, file, nodes={"training": 0, "own": 1})
    assert results(apply(rig, file)) == [("launch", "applied")]
    rig.join()
    rig.destroy()
    rig.until(lambda: "own" not in rig.left(), "it is off")
    assert results(apply(rig, file)) == [("launch", "done")]
    assert "own" not in rig.left()


def test_L22_worked_numbers_busy_is_refused_and_a_price_of_three_per_cent_more_is_paid(rig: Rig, file: Path) -> None:
    busy = idle_machine(rig)
    planned = save(rig, file, nodes={"training": 0, "own": 1})
    assert (planned["destroy"], planned["launch"]) == ([busy], ["rack-1"])
    rig.pod(busy)
    found = apply(rig, file)
    assert sorted(results(found)) == [("destroy", "refused"), ("launch", "applied")]
    assert (found["outcome"], found["same_world"], found["destroy"]) == ("partial", True, [])
    assert found["problems"] == [f"{busy}: destroy was refused: busy: pod default/job. Make a new plan with plan.yml."]
    assert rig.machine().name == busy and rig.claims()[busy]["deletion"] is None
    accepted = apply(rig, file, accept_refused=True)
    assert (accepted["outcome"], accepted["problems"]) == ("partial", [])


@pytest.mark.parametrize("price, result", [("0.72", "applied"), ("0.73", "refused")])
def test_L22_a_price_within_the_bound(rig: Rig, file: Path, price: str, result: str) -> None:
    """Planned at 0.69; five per cent more are 0.7245."""
    save(rig, file)
    set_price(rig.world, {"cloud": "lambda", "type": "gpu_1x_rtx6000", "region": "us-west-1", "price": price})
    found = apply(rig, file)
    assert results(found) == [("launch", result)]
    assert (len(rig.machines()), rig.creates()) == ((1, 1) if result == "applied" else (0, 0))
    if result == "refused":
        assert "costs $0.73/h now, the plan bears up to $0.7245/h" in found["problems"][0]


def test_L22_no_other_offer_above_the_bound_is_tried(rig: Rig, file: Path) -> None:
    """The offer is sold out between application and create call; the next ones are dearer than what was approved."""
    save(rig, file)
    found = rig.run("apply", file=str(file))
    (claim,) = rig.claims().values()
    assert (claim["price_bound"], claim["candidates"]) == ("0.7245", [])
    rig.fault("status", "lambda", "POST", CREATE, status=400, times=None, body={"error": {"code": CAPACITY, "message": "sold out"}})
    done = rig.run("launch", found["run_id"], names=found["launch"])
    rig.unlock(found["run_id"])
    assert [one["result"] for one in done["machines"]] == ["failed"] and rig.machines() == []


def test_L22_an_offer_above_the_bound_of_its_claim_is_not_rented(rig: Rig, file: Path) -> None:
    """Its price has been read again since, and is above what a person approved."""
    save(rig, file)
    found = rig.run("apply", file=str(file))
    (claim,) = rig.claims().values()
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim['name']}"
    rig.kube("PATCH", path, {"data": {"claim.json": json.dumps({**claim, "price_bound": "0.6899"})}})
    done = rig.run("launch", found["run_id"], names=found["launch"])
    rig.unlock(found["run_id"])
    assert [one["result"] for one in done["machines"]] == ["failed"]
    assert (rig.creates(), rig.machines()) == (0, [])


def test_L22_what_falls_due_meanwhile_is_not_added(rig: Rig, file: Path) -> None:
    """Another machine's claim is marked for deletion by hand between plan and application: only the plan's own machine goes."""
    idle_machine(rig)
    save(rig, file, "reap", nodes=None)
    (planned,) = [one["name"] for one in json.loads(file.read_text())["steps"]]
    rig.rent(nodes=2)
    rig.join()
    (other,) = set(rig.claims()) - {planned}
    plan = rig.plan("destroy", names=[other])  # a run that was killed after its record
    rig.unlock(plan["run_id"])
    found = apply(rig, file)
    assert [one["name"] for one in found["steps"]] == [planned]
    assert {one.name for one in rig.machines()} >= {other}
    assert rig.claims()[other]["deletion"]["reason"] == "Manual"


def test_L22_leftovers_alone_take_no_machine_along(rig: Rig, file: Path) -> None:
    rig.provision()
    plan = rig.plan("destroy", all=True)  # decided, not done
    rig.unlock(plan["run_id"])
    run_id = rig.plan("reap")["run_id"]
    done = rig.run("teardown", run_id, names=[], only_named=True)
    rig.unlock(run_id)
    assert done["machines"] == [] and len(rig.machines()) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 14))
def test_L22_killed_in_the_middle_and_applied_again(rig: Rig, file: Path, number: int, after: bool) -> None:
    """At every write of the application: never two machines, and in the end one, launched by the name in the plan where that was free;
    after a create call of which nobody knows, by the next plan."""
    planned = save(rig, file, "provision")
    with rig.killed_at(number, after=after) as cut:
        apply(rig, file)
    killed = cut.seen >= cut.number
    again = apply(rig, file)
    assert len(rig.machines()) <= 1 and rig.creates() <= 1
    assert {one.name for one in rig.machines()} <= set(planned["launch"]) and again["problems"] == []
    assert [one["instance_id"] for one in rig.claims().values() if one["instance_id"]] == [one.id for one in rig.machines()]
    if not rig.machines():
        assert "create call may still show its effect" in again["steps"][0]["why"]
        rig.advance(700)
        save(rig, file, "provision")
        assert results(apply(rig, file)) == [("resume", "applied")]
    assert [one.name for one in rig.machines()] == planned["launch"] and set(rig.claims()) == set(planned["launch"])
    assert killed or number > 9, "the last cuts may lie behind the end"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 8])
def test_L22_killed_while_giving_back_and_applied_again(rig: Rig, file: Path, number: int, after: bool) -> None:
    name = idle_machine(rig)
    save(rig, file, "reap", nodes=None)
    with rig.killed_at(number, after=after):
        apply(rig, file)
    again = apply(rig, file)
    assert again["problems"] == [] and {one["result"] for one in again["steps"]} <= {"applied", "done"}
    assert (rig.machines(), rig.claims(), [one["name"] for one in rig.ledger()]) == ([], {}, [name])


def test_L22_what_would_not_join_is_refused_before_anything_is_rented(rig: Rig, file: Path) -> None:
    save(rig, file)
    with pytest.raises(InvalidInput, match="Nothing was rented, because a machine could not join"):
        rig.run("apply", file=str(file), talos_secrets=None, control_plane_endpoint=None)
    assert rig.claims() == {}


# ---- refused as a whole


def test_L22_thirty_minutes_are_over(rig: Rig, file: Path) -> None:
    save(rig, file)
    rig.advance(31 * 60)
    before = rig.writes()
    with pytest.raises(InvalidInput, match=r"plan\.made_at: .* plans are good for 30m"):
        apply(rig, file)
    assert rig.writes() == before


def test_L22_another_clusters_plan(rig: Rig, file: Path) -> None:
    save(rig, file)
    with pytest.raises(InvalidInput, match=r"plan\.cluster_id: the plan was made for cluster"):
        rig.run("apply", file=str(file), cluster_id="ffffffff")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "hosts: all", "\x00", '{"format_version": 1}', '{"format_version": 9}', "[" * 100_000]
)
def test_L22_garbage_is_refused_before_any_call(rig: Rig, file: Path, text: str) -> None:
    file.write_text(text)
    calls: list[t.Any] = []
    rig.watcher = calls.append
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        rig.run("apply", file=str(file))
    assert calls == []


def test_L22_a_file_without_end_is_refused(rig: Rig) -> None:
    """What a device says of its size is nothing to go by."""
    with pytest.raises(InvalidInput, match="/dev/zero is too large to be a plan"):
        rig.run("apply", file="/dev/zero")


def test_L22_a_plan_that_is_not_there(rig: Rig, file: Path) -> None:
    with pytest.raises(InvalidInput, match=r"plan\.json cannot be read: No such file"):
        rig.run("apply", file=str(file))
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        rig.run("apply", file=str(rig.folder))


def test_L22_a_cut_plan_is_refused(rig: Rig, file: Path) -> None:
    save(rig, file)
    text = file.read_text()
    file.write_text(text[: len(text) // 2])
    with pytest.raises(InvalidInput, match="is not a plan"):
        rig.run("apply", file=str(file))


def test_L22_while_another_run_is_at_work(rig: Rig, file: Path) -> None:
    save(rig, file)
    other = rig.plan("reap")
    with pytest.raises(Locked):
        rig.run("apply", file=str(file), lock_wait=0)
    found = rig.run("apply", file=str(file), on_lock_busy="skip")
    assert (found["outcome"], found["changed"], found["launch"], found["join"]) == ("lock_busy", False, [], [])
    rig.unlock(other["run_id"])
    assert results(apply(rig, file)) == [("launch", "applied")]
