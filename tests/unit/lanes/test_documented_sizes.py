# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of each cloud's room a payload takes is what the documentation says, to a tenth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import pack
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES

from tests.fixtures.talos_nodes import make

ROOT = Path(__file__).resolve().parents[3]
NAME = "tgp-a1b2c3d4-training-0k3zq"


def told(page: str, sentence: str) -> float:
    (found,) = re.findall(sentence, (ROOT / "docs" / page).read_text(encoding="utf-8"))
    return float(found.replace(",", ""))


def test_sizes_of_payloads_are_those_in_the_documentation() -> None:
    text = payload(make(lane=Lane.KUBELET), (ROOT / "examples" / "templates" / "worker.yaml").read_text(encoding="utf-8")).text
    assert len(text) == pytest.approx(told("how_to/kubelet_lane.md", r"A payload has about ([\d,]+) characters"), rel=0.1)
    packed = pack(text, CAPABILITIES["paperspace"], NAME)
    assert len(packed.user_data or "") == pytest.approx(
        told("how_to/kubelet_lane.md", r"packed for Paperspace about ([\d,]+)"), rel=0.1
    )
    carried = pack(text, CAPABILITIES["vast"], NAME)
    size = len(carried.user_data or "") + sum(len(name) + len(value) for name, value in carried.environment.items())
    assert size == pytest.approx(told("reference/clouds.md", r"in variables of 240; the real one takes about ([\d,]+)"), rel=0.1)
