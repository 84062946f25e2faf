# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each option of a run reaches the rule that it is about, from the module's argument to what the world shows (L-23)."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import SpendingBudget
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.observe.context import settings_of
from ansible_collections.tgp.gpu.plugins.module_utils.observe.options import RUN_SPEC
from ansible_collections.tgp.gpu.plugins.module_utils.runs import plan

from sandbox import strangers

from .rig import Rig
from .test_teardown import idle_node

INTEL = "gpu.intel.com/i915"

#: option, a value, and what the rules get of it; the other options of a run are no settings of rules
GIVEN: dict[str, tuple[t.Any, dict[str, t.Any]]] = {
    "ignore_blocklist": (True, {"ignore_blocklist": True}),
    "allow_mass_delete": (True, {"allow_mass_delete": True}),
    "orphan_policy": ("report", {"orphan_policy": "report"}),
    "report_foreign": (True, {"report_foreign": True}),
    "gpu_resources": ([INTEL], {"gpu_resources": (*Settings().gpu_resources, INTEL)}),
    "idle_ignore_namespaces": (["monitoring"], {"ignore_namespaces": (*Settings().ignore_namespaces, "monitoring")}),
    "max_remove_per_run": (3, {"max_remove_per_run": 3}),
    "team_budgets": (
        [{"team": "red", "period": "day", "amount": "20", "time_zone": "UTC", "soft_percent": 80}],
        {"team_budgets": (("red", SpendingBudget("day", Decimal("20"))),)},
    ),
    "team_label": ("cost.example.com/team", {"team_label": "cost.example.com/team"}),
    "requester_label": ("user", {"requester_label": "user"}),
    "namespace_teams": (True, {"namespace_teams": True}),
    "max_nodes_total": (7, {"max_nodes_total": 7}),
    "max_hourly_total": ("12.50", {"max_hourly_total": Decimal("12.50")}),
    "budget": (
        {"period": "day", "amount": "20", "time_zone": "UTC", "soft_percent": 80, "action": "stop_launch"},
        {"budget": settings_of(
            Task({"budget": {"period": "day", "amount": "20", "time_zone": "UTC", "soft_percent": 80, "action": "stop_launch"}})
        ).budget},
    ),
}  # fmt: skip
OTHERS = {
    "run_id",
    "mesh_proxy",
    "events_file",
    "summary",
    "notify_url",
    "notify_token",
    "notify_command",
    "notify_template",
    "notify_apprise",
    "notify_quiet",
    "notify_summary",
    "offer_cache",
    "metrics_file",
    "metrics_push_url",
    "metrics_per_machine",
}


def test_L23_each_option_of_a_run_is_a_setting_or_named_as_none() -> None:
    assert set(RUN_SPEC) == set(GIVEN) | OTHERS and not set(GIVEN) & OTHERS


@pytest.mark.parametrize("option", GIVEN)
def test_L23_an_option_changes_its_setting_and_no_other(option: str) -> None:
    value, wanted = GIVEN[option]
    found, usual = settings_of(Task({option: value})), settings_of(Task({}))
    assert usual == Settings()
    changed = {name: getattr(found, name) for name in Settings.__slots__ if getattr(found, name) != getattr(usual, name)}
    assert changed == wanted and None not in wanted.values()


def test_L23_each_setting_is_changed_by_an_option() -> None:
    """One that no option reaches is a constant that poses as a switch: it belongs beside its rule."""
    asked = {"mode": "destroy", "names": [], "pools": [], "all": True, "force": False}
    found = plan._settings(Task(asked))
    of_the_mode = {name for name in Settings.__slots__ if getattr(found, name) != getattr(Settings(), name)}
    assert of_the_mode == {"mode", "destroy"}
    of_the_mode.add("migrate")  # of mode autoscale with migrate: test_migrate.py
    assert of_the_mode.union(*(wanted for _value, wanted in GIVEN.values())) == set(Settings.__slots__)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gpu_resources", ["i915"]),
        ("gpu_resources", [""]),
        ("gpu_resources", ["gpu.intel.com/"]),
        ("idle_ignore_namespaces", ["mon*"]),
        ("idle_ignore_namespaces", [""]),
        ("max_remove_per_run", -1),
        ("max_hourly_total", "much"),
    ],
)
def test_L23_what_an_option_cannot_mean_is_refused_by_its_name(option: str, value: t.Any) -> None:
    with pytest.raises(InvalidInput, match=option):
        settings_of(Task({option: value}))


def reap(rig: Rig, **options: t.Any) -> dict[str, t.Any]:
    """Plan and teardown with the same options, as module_defaults give them; the plan's result."""
    plan = rig.plan("reap", **options)
    rig.run("teardown", plan["run_id"], orphans=plan["orphans"], **options)
    rig.unlock(plan["run_id"])
    return plan


def orphan(rig: Rig) -> None:
    """A machine that nobody knows of, and that no node came of."""
    rig.behave("never_boots", times=1)
    rig.rent()
    for name in rig.claims():
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")


@pytest.mark.parametrize(("policy", "left"), [("destroy", 0), ("report", 1)])
def test_L12_an_orphan_is_reported_alone_where_the_option_says_so(rig: Rig, policy: str, left: int) -> None:
    orphan(rig)
    for _run in range(3):
        rig.lines.clear()
        reap(rig, orphan_policy=policy)
        rig.advance(700)
    assert len(rig.machines()) == left
    assert any("has no claim" in line for line in rig.lines) is bool(left), "each run tells of what stays"


@pytest.mark.parametrize("told", [False, True])
def test_L1a_foreign_machines_are_named_where_the_option_says_so(rig: Rig, told: bool) -> None:
    stranger = strangers.rent(rig.box, "lambda", "workstation")
    reap(rig, report_foreign=told)
    assert any("workstation" in line for line in rig.lines) is told
    assert stranger.ended is None


@pytest.mark.parametrize("counted", [False, True])
def test_L3_a_pod_with_a_gpu_of_another_vendor_is_work_where_the_option_says_so(rig: Rig, counted: bool) -> None:
    name = idle_node(rig, idleMode="gpu")
    rig.pod(name, containers=[{"name": "c", "image": "x", "resources": {"limits": {INTEL: "1"}}}])
    reap(rig, **({"gpu_resources": [INTEL]} if counted else {}))
    assert (rig.machines() != []) is counted


@pytest.mark.parametrize("ignored", [False, True])
def test_L3_pods_of_a_namespace_are_no_work_where_the_option_says_so(rig: Rig, ignored: bool) -> None:
    name = idle_node(rig)
    rig.pod(name, "metrics")
    reap(rig, **({"idle_ignore_namespaces": ["default"]} if ignored else {}))
    assert (rig.machines() == []) is ignored


def test_L23_the_loop_that_is_woken_by_pods_counts_the_same_gpus(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.tgp.gpu.plugins.module_utils.runs import loop

    seen: list[t.Any] = []

    class Attention:
        def __init__(self, _kube: t.Any, watcher: t.Any, *_given: t.Any, gpu_resources: tuple[str, ...]) -> None:
            seen.extend([gpu_resources, watcher.settings.gpu_resources])

        def run(self) -> None: ...

        def stop(self) -> None: ...

    monkeypatch.setattr(loop, "Attention", Attention)
    loop.Waker(Task({"gpu_resources": [INTEL], "kubeconfig": str(rig.kubeconfig)}, transport=rig._transport)).close()
    assert seen == [(*Settings().gpu_resources, INTEL)] * 2
