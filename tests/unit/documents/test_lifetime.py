# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a pool wants its nodes to live, beside how long the cloud lets a machine live."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse

from .test_meaning import document

GCP = {"name": "gcp"}
DAY = {"name": "gcp", "settings": {"maxRunHours": 24}}


def warnings_of(expire_after: str, *providers: dict[str, t.Any], requirements: t.Sequence[dict[str, t.Any]] = ()) -> list[str]:
    spec = {
        "nodeClassRef": {"name": "base"},
        "disruption": {"expireAfter": expire_after},
        "template": {"spec": {"requirements": list(requirements)}},
    }
    warnings = parse([document("GPUNodeClass", {"providers": list(providers)}), document("GPUNodePool", spec, "p")])[1]
    return [warning for warning in warnings if "deletes a machine" in warning]


def fault_of(expire_after: str, *providers: dict[str, t.Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        warnings_of(expire_after, *providers)
    (sentence,) = caught.value.problems
    return sentence


@pytest.mark.parametrize(("expire_after", "provider", "ends"), [("721h", GCP, "720h"), ("24h1s", DAY, "24h")])
def test_a_life_that_the_cloud_cuts_off_is_refused(expire_after: str, provider: dict[str, t.Any], ends: str) -> None:
    sentence = fault_of(expire_after, {"name": "lambda"}, provider)
    assert f"spec.disruption.expireAfter: gcp deletes a machine after {ends} (maxRunHours of class base)" in sentence
    assert "raise maxRunHours" in sentence


def test_a_request_is_refused_at_its_own_field() -> None:
    wanted = {"provider": "gcp", "gpuType": "L4", "maxLifetime": "800h", "maxHourlyPrice": "1"}
    with pytest.raises(InvalidInput) as caught:
        parse([document("GPURequest", wanted, "one")])
    assert "spec.maxLifetime: gcp deletes a machine after 720h" in caught.value.problems[0]


@pytest.mark.parametrize("expire_after", ["24h", "23h51m"])
def test_an_end_within_the_grace_period_gets_a_warning(expire_after: str) -> None:
    (warning,) = warnings_of(expire_after, DAY)
    assert "spec.disruption.expireAfter: gcp deletes a machine after 24h" in warning


@pytest.mark.parametrize(("expire_after", "providers"), [
    ("23h50m", [DAY]), ("Never", [DAY]), ("9000h", [{"name": "lambda"}]), ("9000h", [{**DAY, "enabled": False}, {"name": "lambda"}]),
])  # fmt: skip
def test_a_shorter_life_and_other_clouds_get_none(expire_after: str, providers: list[dict[str, t.Any]]) -> None:
    assert warnings_of(expire_after, *providers) == []


@pytest.mark.parametrize(("operator", "clouds"), [("In", ["lambda"]), ("NotIn", ["gcp"])])
def test_a_pool_that_leaves_the_cloud_out_may_live_longer(operator: str, clouds: list[str]) -> None:
    requirement = {"key": "tgp.io/provider", "operator": operator, "values": clouds}
    assert warnings_of("9000h", DAY, {"name": "lambda"}, requirements=[requirement]) == []


def test_a_request_that_names_no_cloud_may_live_longer() -> None:
    wanted = {"gpuType": "L4", "maxLifetime": "9000h", "maxHourlyPrice": "1"}
    specs, _warnings = parse([document("GPURequest", wanted, "one")])
    assert specs.pools[0].expire_after == 9000 * 3600
