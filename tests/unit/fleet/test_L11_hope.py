# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a machine on its way is given up because its cloud calls it off (L-11, L-21)."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.operations.join.tracker import Hope

from .build import NOON, claim, instance, offer

EARLY, LATE = NOON - timedelta(seconds=1), NOON + timedelta(seconds=30)
OFF, ON = InstanceState.TERMINATED, InstanceState.RUNNING


def own(*words: tuple[InstanceState, t.Any]) -> str:
    """What is said of an own machine, switched on NOON, after its cloud said these words in lists that were asked for then."""
    hope, machine = Hope(), claim("rack-1", Phase.BOOTING, offer=offer(cloud="webhook"), launch_started=NOON)
    return [hope.lost(machine, instance("rack-1", state), asked, alive=False) for state, asked in words][-1]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([(OFF, EARLY)], id="a list from before the call"),
        pytest.param([(OFF, LATE)], id="a service that knows only whether its system answers"),
        pytest.param([(ON, EARLY), (OFF, LATE)], id="it was on before, which nobody asked for"),
        pytest.param([(OFF, EARLY), (ON, LATE)], id="it is up"),
    ],
)
def test_L21_an_own_machine_is_off_until_it_is_up(words: list[tuple[InstanceState, t.Any]]) -> None:
    assert own(*words) == ""


def test_L21_an_own_machine_that_was_up_and_is_off_again_is_given_up() -> None:
    assert own((ON, LATE), (OFF, LATE + timedelta(seconds=5))).startswith("webhook calls the machine")


def test_L11_a_rented_machine_that_is_off_is_given_up_at_once() -> None:
    machine = claim(phase=Phase.BOOTING, launch_started=NOON)
    assert Hope().lost(machine, instance(state=InstanceState.STOPPED), LATE, alive=False)
