# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The good way, with which all the bad ones are compared."""

from __future__ import annotations

from .rig import Rig


def test_a_machine_comes_and_goes_and_nothing_is_left(rig: Rig) -> None:
    rented = rig.rent()
    assert [one["result"] for one in rented["machines"]] == ["launched"]
    joined = rig.join()
    assert [(one["result"], one["phase"]) for one in joined["machines"]] == [("ready", "Ready")], joined
    machine = rig.machine()
    gone = rig.destroy()
    assert [one["result"] for one in gone["machines"]] == ["gone"], gone
    assert rig.left() == {}
    (line,) = rig.ledger()
    assert line["ids"] == [machine.id]
    rig.check_bill()
