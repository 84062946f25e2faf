# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pause.yml and resume.yml: what every playbook says and does while a pool is paused."""

from __future__ import annotations

import typing as t

from .box import NOTHING, Sandbox

IDLE = 10 * 60 + 60
POOL = {"pool": "training"}


def test_L31_a_paused_pool_stays_through_every_playbook_and_is_told_by_each(start: t.Callable[..., Sandbox]) -> None:
    sandbox = start(speed=100)
    sandbox.playbook("provision", extra_vars={**POOL, "nodes": 1}).succeeded()
    (machine,) = [one["name"] for one in sandbox.living()]

    checked = sandbox.playbook("pause", extra_vars={**POOL, "reason": "provider incident"}, check=True).succeeded()
    assert "pool/default/training" in checked.text and "changed=1" in checked.text
    assert not [one for one in sandbox.configmaps() if one["metadata"]["name"] == "tgp-state-pauses"]
    assert "changed=1" in sandbox.playbook("pause", extra_vars={**POOL, "reason": "provider incident"}).succeeded().text
    before = sandbox.writes()
    assert "changed=0" in sandbox.playbook("pause", extra_vars={**POOL, "reason": "provider incident"}).succeeded().text
    assert sandbox.writes() == before

    sandbox.playbook("reap").succeeded()
    sandbox.advance(IDLE)
    sandbox.playbook("reap").succeeded()
    sandbox.advance(IDLE)
    for name, more in (("reap", {}), ("autoscale", {}), ("status", {}), ("plan", {"plan": str(sandbox.folder / "plan.json")})):
        told = sandbox.playbook(name, extra_vars=more).succeeded().words
        assert "paused: default/training: it is paused since " in told and "provider incident" in told, (name, told)
        assert "1 machine, $" in told
        assert [one["name"] for one in sandbox.living()] == [machine]

    refused = sandbox.playbook("provision", extra_vars={**POOL, "nodes": 2})
    assert refused.rc == 2 and "default/training: 1 machines will not come: it is paused since " in refused.words
    unknown = sandbox.playbook("pause", extra_vars={"pool": "trainnig"})
    assert unknown.rc == 2 and "tgp_pool: there is no pool trainnig. Known are: default/own, default/training." in unknown.words

    assert "Nothing is paused." in sandbox.playbook("resume").succeeded().words
    sandbox.playbook("reap").succeeded()
    assert sandbox.living() == [] and sandbox.left() == NOTHING
