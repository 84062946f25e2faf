# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan in the making says of each machine what is true at its end."""

from __future__ import annotations

from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claim_sync import settle
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan_builder import Draft

from .build import CAPABILITIES, claim, of, seen, specs

GOES, STAYS = "tgp-a1b2c3d4-p-00001", "tgp-a1b2c3d4-p-00002"


def test_L22_why_a_machine_stays_is_not_told_of_one_that_goes_for_another_reason() -> None:
    claims = (claim(GOES), claim(STAYS))
    situation = Situation(seen(claims=claims), specs(), Settings(), CAPABILITIES)
    draft = Draft(situation, {one.name: settle(one, situation) for one in claims})
    for name in (GOES, STAYS):
        draft.report(name, "Kept", "not idle long enough")
    draft.report(GOES, "GpuLost", "worth knowing all the same")
    draft.destroy(claims[0], "Drifted", "its template changed")
    told = [(one.name, one.reason) for one in of(draft.plan(), "report")]
    assert told == [(STAYS, "Kept"), (GOES, "GpuLost")]
