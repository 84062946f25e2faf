# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-46: the first run after a controller was away terminates the machines that powered themselves off."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, InstanceState, Lane, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import POWERED_OFF_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import Reason
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES

from .build import claim, decide, instance, node, node_class, of, offer, pool, seen, specs

OFF = {POWERED_OFF_ANNOTATION: "controller-silent"}
GUARDED = [cloud for cloud, facts in CAPABILITIES.items() if facts.rented and facts.stop and Lane.KUBELET in facts.lanes]


def reaped(number: int, *, cloud: str = "gcp", marked: int = 0, ready: bool = False, **facts: t.Any) -> Plan:
    names = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(number)]
    shown = {"cloud": cloud, "state": InstanceState.STOPPED, "raw_state": "off", **facts}
    observation = seen(
        claims=tuple(claim(name, offer=offer(cloud=cloud)) for name in names),
        nodes=tuple(node(name, ready, annotations=OFF if place < marked else {}) for place, name in enumerate(names)),
        clouds={cloud: CloudView(tuple(instance(name, **shown) for name in names), ())},
    )
    return decide(observation, specs(pool(), classes=(node_class(clouds=(cloud,)),)))


def ended(found: Plan) -> int:
    return len([action for action in of(found, "destroy") if action.reason == Reason.INSTANCE_GONE])


@pytest.mark.parametrize("cloud", GUARDED)
@pytest.mark.parametrize("marked", [0, 1])
def test_L46_the_next_run_terminates_a_stopped_machine_of_every_cloud(cloud: str, marked: int) -> None:
    words = {word for word, facts in CAPABILITIES[cloud].states.items() if facts.state is InstanceState.STOPPED}
    assert words and ended(reaped(1, cloud=cloud, marked=marked)) == 1


def test_L46_the_clouds_with_a_guard_by_default_are_among_them() -> None:
    assert {"gcp", "paperspace", "vast", "vultr"} == set(GUARDED)


def test_L46_six_of_six_machines_that_say_so_go_at_once_and_four_that_do_not_wait() -> None:
    all_marked, none_marked, mixed = reaped(6, marked=6), reaped(6), reaped(6, marked=2)
    assert (ended(all_marked), all_marked.problems) == (6, ())
    assert ended(none_marked) == 0 and "guard_refused: 6 of 6" in none_marked.problems[0]
    assert ended(mixed) == 2 and "guard_refused: 4 of 6" in mixed.problems[0]


def test_L46_a_mark_alone_ends_nothing() -> None:
    assert ended(reaped(6, marked=6, state=InstanceState.RUNNING)) == 0
    assert ended(reaped(1, marked=1, state=InstanceState.UNKNOWN)) == 0


def test_L46_a_ready_node_is_alive_whatever_its_mark_and_its_cloud_say() -> None:
    found = reaped(6, marked=6, ready=True)
    assert ended(found) == 0 and any("its Node is Ready" in text for text in found.warnings)
