# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual machines whose cloud takes a script, or a script and variables: they become nodes from what our lanes pack."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import Payload, payload
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Carrier, Lane, MeshChoice
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read
from ansible_collections.tgp.gpu.plugins.module_utils.talos.spec import NodeSpec

from sandbox.box import IN_PROCESS
from sandbox.world import Machine, Offer


def packed(hand: t.Any, name: str, carrier: Carrier) -> Payload:
    spec = NodeSpec(
        name=name,
        lane=Lane.KUBELET,
        pool="training",
        secrets=read(hand.box.talos.bundle()),
        bootstrap_token=hand.token(),
        auth_key=hand.key(),
        endpoint=IN_PROCESS,
        cluster_name="sandbox",
        gpu_count=1,
        model="A10",
        mesh=MeshChoice(tags=("tag:gpu",)),
    )
    return payload(spec, capability=Capability("any", (Lane.KUBELET,), carrier=carrier, user_data_limit=32_768))


def rent(hand: t.Any, name: str, made: Payload) -> Machine:
    world = hand.box.world
    offer = Offer("vast", "vm", "here", Decimal("0.30"), 1, "A10", 24576, 1, 60.0)
    details = {"system": "ubuntu", "environment": dict(made.environment), "addresses": ("198.51.100.7", "10.0.0.7")}
    machine = Machine(name, "vast", name, name, offer, world.clock.now(), payload=made.text, details=details)
    return t.cast(Machine, world.rent(machine))


@pytest.mark.parametrize("carrier", [Carrier.SCRIPT, Carrier.ENVIRONMENT])
def test_a_machine_with_a_packed_script_becomes_a_node(make: t.Any, carrier: Carrier) -> None:
    hand = make()
    made = packed(hand, "tgp-a-1", carrier)
    assert bool(made.environment) == (carrier is Carrier.ENVIRONMENT)
    hand.story(rent(hand, "tgp-a-1", made), "done")
    assert hand.ready("tgp-a-1") == "True" and hand.box.tailnet.devices()[0].hostname == "tgp-a-1"


def test_a_machine_that_lost_a_variable_tells_why(make: t.Any) -> None:
    hand = make()
    made = packed(hand, "tgp-a-1", Carrier.ENVIRONMENT)
    fewer = dict(list(made.environment.items())[1:])
    machine = rent(hand, "tgp-a-1", dataclasses.replace(made, environment=fewer))
    assert "gzip: stdin" in hand.story(machine, "config") or "base64" in hand.story(machine, "config")
    assert hand.node("tgp-a-1") is None
