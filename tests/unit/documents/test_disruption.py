# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``spec.disruption`` of a pool: what it means, and what is refused before anything is done."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.model import DisruptionBudget, Pool, UnhealthyCondition

from .test_meaning import SERVICE_POOL, changed, document

CLASS = document("GPUNodeClass", {"providers": [{"name": "lambda"}]})


def read(disruption: dict[str, t.Any]) -> Pool:
    spec = {"nodeClassRef": {"name": "base"}, "disruption": disruption}
    return parse([CLASS, document("GPUNodePool", spec, "p")])[0].pools[0]


def fault(disruption: dict[str, t.Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(disruption)
    (sentence,) = caught.value.problems
    return sentence.removeprefix("GPUNodePool.yml: spec.disruption.")


@pytest.mark.parametrize(("word", "policy"), [
    ("WhenIdle", "WhenIdle"), ("WhenEmpty", "WhenIdle"), ("WhenUnderutilized", "WhenUnderutilized"),
    ("WhenEmptyOrUnderutilized", "WhenUnderutilized"), ("Never", "Never"),
])  # fmt: skip
def test_L05_policies_and_karpenters_words_for_them(word: str, policy: str) -> None:
    assert read({"consolidationPolicy": word}).consolidation_policy == policy


def test_L23_defaults() -> None:
    found = read({})
    assert (found.consolidation_policy, found.consolidate_after, found.expire_after, found.expire_jitter) == (
        "WhenIdle",
        600,
        None,
        0,
    )
    assert (found.drift_policy, found.utilization_threshold, found.replace_cheaper) == ("Report", Decimal("0.5"), 0)
    assert found.disruption_budgets == ()


def test_L06_a_budget_is_read_as_karpenter_writes_it() -> None:
    written = [
        {"nodes": "20%"},
        {"nodes": 3, "reasons": ["Drifted", "Empty"]},
        {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h", "timeZone": "Europe/Berlin"},
    ]
    assert read({"budgets": written}).disruption_budgets == (
        DisruptionBudget("20%"),
        DisruptionBudget("3", ("Drifted", "Empty")),
        DisruptionBudget("0", (), "0 9 * * mon-fri", 8 * 3600, "Europe/Berlin"),
    )


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"nodes": "abc"}, "budgets[0].nodes: 'abc' is neither a number of nodes nor a share"),
        ({"nodes": "101%"}, "budgets[0].nodes: '101%' is neither"),
        ({"nodes": -1}, "budgets[0].nodes: '-1' is neither"),
        ({}, "budgets[0].nodes: this field is missing"),
        ({"nodes": "1", "reasons": []}, "budgets[0].reasons: it must not be empty"),
        ({"nodes": "1", "reasons": ["Expired"]}, "budgets[0].reasons[0]: 'Expired' is not possible here. Use one of Empty"),
        ({"nodes": "1", "schedule": "@daily"}, "budgets[0].duration: is missing: a budget has both"),
        ({"nodes": "1", "duration": "1h"}, "budgets[0].schedule: is missing: a budget has both"),
        (
            {"nodes": "1", "schedule": "0 25 * * *", "duration": "1h"},
            "budgets[0].schedule: '0 25 * * *' is not a schedule: bad hour",
        ),
        (
            {"nodes": "1", "schedule": "0 0 31 2 *", "duration": "1h"},
            "budgets[0].schedule: '0 0 31 2 *' is not a schedule: bad day-of-month",
        ),
        (
            {"nodes": "1", "schedule": "@daily", "duration": "0s"},
            "budgets[0].duration: is 0, so the budget would never be in force",
        ),
        ({"nodes": "1", "schedule": "@daily", "duration": "Never"}, 'budgets[0].duration: "Never" is not allowed here'),
        (
            {"nodes": "1", "schedule": "@daily", "duration": "1h", "timeZone": "Mars/Olympus"},
            "budgets[0].timeZone: 'Mars/Olympus' is no",
        ),
        ({"nodes": "1", "timeZone": "UTC"}, "budgets[0].timeZone: has no effect without a schedule"),
        ({"nodes": "1", "scheduel": "@daily"}, "budgets[0].scheduel: unknown field. Did you mean"),
    ],
)
def test_L06_budgets_that_are_refused(budget: dict[str, t.Any], words: str) -> None:
    assert fault({"budgets": [budget]}).startswith(words)


@pytest.mark.parametrize(
    ("disruption", "words"),
    [
        ({"expireJitter": "10%"}, "expireJitter: has no effect without expireAfter"),
        ({"expireJitter": "10%", "expireAfter": "Never"}, "expireJitter: has no effect without expireAfter"),
        ({"expireJitter": "101%", "expireAfter": "1h"}, "expireJitter: '101%' is not a percentage from 0% to 100%"),
        ({"utilizationThreshold": "40%"}, "utilizationThreshold: has no effect without consolidationPolicy: WhenUnderutilized"),
        ({"replaceCheaperPercent": 30}, "replaceCheaperPercent: has no effect without consolidationPolicy: WhenUnderutilized"),
        (
            {"replaceCheaperPercent": "x", "consolidationPolicy": "WhenUnderutilized"},
            "replaceCheaperPercent: 'x' is not a percentage",
        ),
        ({"driftPolicy": "Always"}, "driftPolicy: 'Always' is not possible here. Use one of Report, Replace."),
    ],
)
def test_D06_what_would_change_nothing_is_refused(disruption: dict[str, t.Any], words: str) -> None:
    assert fault(disruption).startswith(words)


def test_L05_a_service_is_never_underutilized() -> None:
    spec = changed(SERVICE_POOL, "disruption.consolidationPolicy", "WhenUnderutilized")
    containers = document("GPUNodeClass", {"providers": [{"name": "runpod"}]}, "containers")
    with pytest.raises(InvalidInput) as caught:
        parse([containers, document("GPUNodePool", spec, "p")])
    assert "spec.disruption.consolidationPolicy: a service has its machine to itself" in caught.value.problems[0]


def entries(*listed: dict[str, t.Any], **template: t.Any) -> str:
    spec = {"nodeClassRef": {"name": "base"}, "unhealthyConditions": list(listed), "template": {"spec": template}}
    with pytest.raises(InvalidInput) as caught:
        parse([CLASS, document("GPUNodePool", spec, "p")])
    (sentence,) = caught.value.problems
    return sentence.removeprefix("GPUNodePool.yml: spec.unhealthyConditions")


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ([{"taint": "tgp.io/gpu-lost"}], "[0].taint: tgp.io/gpu-lost is set by Kubernetes or by the collection itself"),
        ([{"taint": "node.kubernetes.io/"}], "[0].taint: node.kubernetes.io/ is set by Kubernetes or by the collection itself"),
        ([{"taint": "gpu"}], "[0].taint: gpu is one that spec.template.spec.taints gives every node of the pool"),
        ([{"type": "A", "action": "Ignore", "for": "5m"}], "[0].for: has no effect with action: Ignore"),
        ([{"type": "A"}, {"type": "A", "contains": ["x"]}], "[1]: an entry before it fits whatever this one fits"),
        ([{"taint": "a", "value": "1"}, {"taint": "a", "value": "1"}], "[1]: an entry before it fits whatever this one fits"),
        ([{"xids": [79, 119]}, {"xids": [119]}], "[1]: an entry before it fits whatever this one fits"),
        ([{"xids": [79], "contains": ["x"]}], "[0].contains: is of a condition"),
        ([{"xids": [0]}], "[0].xids[0]: 0"),
    ],
)
def test_L37_an_entry_that_could_not_do_what_it_says_is_refused(listed: list[dict[str, t.Any]], words: str) -> None:
    assert entries(*listed, taints=[{"key": "gpu", "effect": "NoSchedule"}]).startswith(words)


def test_L37_entries_are_read_in_their_order() -> None:
    listed = [{"type": "A", "contains": ["x"], "for": "5m", "action": "Replace"}, {"type": "A"}, {"taint": "b/", "value": "1"}]
    listed += [{"xids": [79, 119], "for": "5m"}, {"xids": [79, 48]}]
    spec = {"nodeClassRef": {"name": "base"}, "unhealthyConditions": listed}
    assert parse([CLASS, document("GPUNodePool", spec, "p")])[0].pools[0].unhealthy_conditions == (
        UnhealthyCondition("A", contains=("x",), lasts=300, action="Replace"),
        UnhealthyCondition("A"),
        UnhealthyCondition(taint="b/", value="1"),
        UnhealthyCondition(xids=(79, 119), lasts=300),
        UnhealthyCondition(xids=(79, 48)),
    )


OWN = document(
    "GPUNodeClass",
    {
        "providers": [
            {
                "name": "webhook",
                "machines": [
                    {
                        "name": "rack-1",
                        "gpuCount": 1,
                        "scaleUpEndpoint": "https://power.test/on",
                        "scaleDownEndpoint": "https://power.test/off",
                    }
                ],
            }
        ]
    },
)


@pytest.mark.parametrize(("written", "seconds"), [("24h", 86400), (90, 90), ("0s", 0), ("Never", None), (None, None)])
def test_L54_the_second_timer_of_own_machines(written: t.Any, seconds: int | None) -> None:
    disruption = {} if written is None else {"deleteStoppedAfter": written}
    spec = {"nodeClassRef": {"name": "base"}, "disruption": disruption}
    assert parse([OWN, document("GPUNodePool", spec, "p")])[0].pools[0].delete_stopped_after == seconds


def test_L54_it_is_refused_where_every_machine_is_rented() -> None:
    assert fault({"deleteStoppedAfter": "24h"}) == (
        "deleteStoppedAfter: there are no own machines in class base. A rented one is billed while it is stopped, so it is never stopped: it "
        "is deleted as soon as it goes. Remove this field, or use a class that lists own machines."
    )
    assert read({"deleteStoppedAfter": "Never"}).delete_stopped_after is None


def test_L54_services_have_no_own_machines() -> None:
    services = changed(SERVICE_POOL, "disruption.deleteStoppedAfter", "24h")
    runs = document("GPUNodeClass", {"providers": [{"name": "runpod"}]})
    with pytest.raises(InvalidInput) as caught:
        parse([runs, document("GPUNodePool", services, "p")])
    assert any("a service runs on a rented machine, which is deleted and never stopped" in text for text in caught.value.problems)
