# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plans of Vultr are rented, and why the others are not. No form of a plan makes a fraction of a GPU a whole one."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vultr.plans import (
    WHOLE,
    Gpus,
    gpus_of,
    model_of,
    price_in,
    refusal,
)
from hypothesis import given
from hypothesis import strategies as st

A16 = "vcg-a16-6c-64g-16vram"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"id": A16, "type": "vdm"}, ""),
        ({"id": A16, "type": "vcg", "gpu_vram_gb": 16}, "type vcg, not vdm"),
        ({"id": A16, "type": "vdm", "gpu_vram_gb": 8}, "8 GB of GPU memory, not 16"),
        ({"id": A16, "type": "vdm", "deploy_ondemand": False}, "preemptible only"),
        ({"id": A16, "type": "vdm", "deploy_ondemand": True}, ""),
        ({"id": "vcg-a16-2c-8g-2vram", "type": "vcg", "gpu_type": "NVIDIA_A16", "gpu_vram_gb": 2}, "fraction of a GPU"),
        ({"id": "vcg-a16-2c-8g-2vram", "type": "vcg"}, "not known"),
        ({"id": "vcg-a100-3c-30g-20vram", "type": "vcg", "gpu_type": "NVIDIA_A100", "gpu_vram_gb": 20}, "fraction of a GPU"),
        ({"id": "vcg-mi355x-252c-2872g-2304vram", "type": "vdm"}, "AMD"),
        ({"id": "vcg-b300-9c-9g-288vram", "type": "vdm"}, "not known"),
        ({"id": "vcg-l40s-16c-180g-48vram", "type": "vcg", "gpu_vram_gb": 48}, ""),
        ({"id": "vcg-l40s-32c-360g-96vram", "type": "vcg", "gpu_vram_gb": 96}, ""),
        ({"id": "vcg-l40s-16c-180g-24vram", "type": "vcg", "gpu_vram_gb": 24}, "fraction of a GPU"),
    ],
)
def test_what_is_rented(plan: dict[str, t.Any], words: str) -> None:
    found = refusal(plan)
    assert words in found and bool(words) is bool(found), found


def test_ids_tell_the_number_of_L40S() -> None:
    assert gpus_of("vcg-l40s-64c-720g-192vram") == Gpus("L40S", 4, 48, "vcg")
    assert gpus_of("vcg-l40s-64c-720g-48vram") is None
    assert model_of({"id": "vcg-l40s-2c-8g-6vram"}) == "L40S" and model_of({"id": "vc2-1c-1gb"}) == ""


_VRAM = st.one_of(st.none(), st.integers(1, 2000), st.floats(0.5, 2000))


@given(st.sampled_from([*WHOLE, "vcg-a16-2c-8g-2vram", "vcg-x-1c"]), st.sampled_from(["vcg", "vdm", "vc2"]), _VRAM)
def test_nothing_with_less_memory_than_its_cards_have_is_rented(identity: str, kind: str, memory: float | None) -> None:
    if refusal({"id": identity, "type": kind, "gpu_vram_gb": memory}):
        return
    known = gpus_of(identity)
    assert known is not None and kind == known.kind == "vdm"
    assert memory is None or memory >= known.gib * known.number


@pytest.mark.parametrize(
    ("plan", "region", "price"),
    [
        ({"hourly_cost": 0.49}, "ewr", "0.49"),
        ({"hourly_cost": 0.49, "location_cost": {"ewr": {"hourly_cost": 0.6}}}, "ewr", "0.6"),
        ({"hourly_cost": 0.49, "location_cost": {"ewr": {"hourly_cost": 0.6}}}, "ams", "0.49"),
        ({"hourly_cost": 0.49, "location_cost": []}, "ams", "0.49"),
        ({"monthly_cost": 672}, "ewr", "1.0000"),
        ({"hourly_cost": 0, "monthly_cost": True}, "ewr", None),
        ({"hourly_cost": float("nan")}, "ewr", None),
    ],
)
def test_prices(plan: dict[str, t.Any], region: str, price: str | None) -> None:
    assert price_in(plan, region) == (None if price is None else Decimal(price))
