# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random launches and teardowns with faults on, for each cloud. ``TGP_CHAOS_RUNS`` says how many stories, ``TGP_CHAOS_SEED`` which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .campaign import Campaign
from .grounds import GROUNDS

RUNS = int(os.environ.get("TGP_CHAOS_RUNS", "25"))
SEED = int(os.environ.get("TGP_CHAOS_SEED", "1"))
_PER_WORLD = 25  # stories played in one world, so that ledgers and histories stay readable


@pytest.mark.parametrize("ground", sorted(GROUNDS))
def test_I13_nothing_leaks_whatever_fails(ground: str, tmp_path: Path) -> None:
    total = 0
    for first in range(0, RUNS, _PER_WORLD):
        campaign = Campaign(GROUNDS[ground], tmp_path / str(first), SEED)
        try:
            for number in range(first, min(first + _PER_WORLD, RUNS)):
                campaign.run(number)
        finally:
            campaign.close()
        total += campaign.report.runs
        print(f"{ground}, seed {SEED}, stories {first} to {first + campaign.report.runs - 1}: {campaign.report}")
    assert total == RUNS
