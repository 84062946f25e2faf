# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines of tgp-operator there are, and which of them are asked to be adopted (L-49)."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, HandedOut
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.operations.moving import tgp_operator
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims import moving
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.imports import (
    ImportRow,
    Installation,
    OperatorPool,
    OperatorRequest,
    candidates,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES, canonical_cloud

from .build import at, claim, instance, node, pool, seen, specs

NODE = "tgp-node-work"
REQUEST = OperatorRequest("work", "lambdalabs", "i-1", NODE, "Ready")
MACHINE = instance("tgp-instance-1753962480", id="i-1", ip="203.0.113.7", private_ip="10.0.0.7")


def found(
    *requests: OperatorRequest, pools: t.Sequence[OperatorPool] = (), wanted: str = "p", **world: t.Any
) -> tuple[ImportRow, ...]:
    situation = Situation(seen(**{"instances": (MACHINE,), **world}), specs(pool(), pool("q")), Settings(), CAPABILITIES)
    return candidates(Installation(requests, tuple(pools)), situation, wanted, canonical_cloud)


def theirs(name: str = NODE, **facts: t.Any) -> t.Any:
    """A Node without a mark of ours."""
    return dataclasses.replace(node(name, **facts), labels=facts.get("labels", {}))


def test_L49_the_table_of_the_rule() -> None:
    ready = theirs()
    (row,) = found(REQUEST, nodes=(ready,))
    assert row == ImportRow("GPURequest work", "lambda", "i-1", NODE, "p")
    for changed in ({"deleting": True}, {"phase": "Terminating"}):
        (row,) = found(OperatorRequest("work", "lambdalabs", "i-1", NODE, **{"phase": "Ready", **changed}), nodes=(ready,))
        assert row.problem
    first, second = found(REQUEST, OperatorRequest("zzz", "lambda-labs", "i-1", NODE, "Ready"), nodes=(ready,))
    assert not first.problem and "another GPURequest" in second.problem


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (OperatorRequest("work", problem="cannot be read"), "cannot be read"),
        (OperatorRequest("work", "lambdalabs", phase="Pending"), "it has no machine yet (phase Pending)"),
        (OperatorRequest("work", "scaleway", "i-9"), "the provider scaleway is unknown here"),
        (OperatorRequest("work", "", "i-9"), "no provider is named"),
    ],
)
def test_L49_a_request_that_names_no_machine_of_ours_to_be(request_of: OperatorRequest, words: str) -> None:
    assert words in found(request_of, instances=())[0].problem


def test_L49_the_pool_is_that_of_the_label_or_the_one_that_is_given() -> None:
    marks = {"tgp.io/instance-id": "i-1", "tgp.io/provider": "lambda"}
    (row,) = found(nodes=(theirs(labels={**marks, "tgp.io/nodepool": "q"}),))
    assert (row.source, row.pool, row.problem) == (f"Node {NODE}", "default/q", "")
    (row,) = found(nodes=(theirs(labels=marks),))
    assert (row.pool, row.problem) == ("p", "")
    (row,) = found(nodes=(theirs(labels=marks),), wanted="")
    assert "names no pool" in row.problem
    (row,) = found(nodes=(theirs(labels={**marks, "tgp.io/nodepool": "q"}),), pools=[OperatorPool("q", "team", deleting=True)])
    assert "is being deleted" in row.problem


def test_L49_an_annotation_counts_before_a_label() -> None:
    labels = {"tgp.io/instance-id": "cut-off", "tgp.io/provider": "gcp", "tgp.io/nodepool": "p"}
    (row,) = found(nodes=(theirs(labels=labels, annotations={"tgp.io/instance-id": "us-central1-a/x"}),), instances=())
    assert (row.cloud, row.id) == ("gcp", "us-central1-a/x")


def test_L49_a_node_without_an_id_is_found_by_an_address_that_one_machine_has() -> None:
    labels = {"tgp.io/nodepool": "p", "tgp.io/provisioned": "true"}
    for address in ("203.0.113.7", "10.0.0.7"):
        (row,) = found(nodes=(theirs(labels=labels, addresses=(address,)),))
        assert (row.cloud, row.id, row.problem) == ("lambda", "i-1", "")
    other = instance("somebodys-box", id="i-2", private_ip="10.0.0.7")  # in a network of its own, perhaps
    by_private = theirs(labels=labels, addresses=("10.0.0.7",))
    assert found(nodes=(by_private,), instances=(other,))[0].problem
    twice = instance("tgp-instance-1753962481", id="i-2", ip="203.0.113.7")
    rows = found(nodes=(theirs(labels=labels, addresses=("203.0.113.7",)),), instances=(MACHINE, twice))
    assert "2 machines have its name or its address" in rows[0].problem


def test_L49_an_address_counts_only_beside_complete_lists() -> None:
    """The machine may be one of a provider that did not answer, with the same private address."""
    labels = {"tgp.io/nodepool": "p", "tgp.io/provisioned": "true"}
    clouds = {"lambda": CloudView((MACHINE,), ()), "gcp": CloudView(None, None, problem="500")}
    (row, *_others) = found(nodes=(theirs(labels=labels, addresses=("10.0.0.7",)),), clouds=clouds)
    assert (row.id, "gcp could not be listed" in row.problem) == ("", True)
    named = theirs(labels={**labels, "tgp.io/provider": "lambda"}, addresses=("10.0.0.7",))
    assert [(row.id, row.problem) for row in found(nodes=(named,), clouds=clouds)] == [("i-1", "")]


def test_L49_the_node_of_the_kubelet_counts() -> None:
    made = theirs(
        "tgp-p-i-1", ready=None, labels={"tgp.io/instance-id": "i-1", "tgp.io/provider": "lambda", "tgp.io/nodepool": "p"}
    )
    kept = theirs("talos-1", labels={"tgp.io/nodepool": "p", "tgp.io/provisioned": "true"}, addresses=("203.0.113.7",))
    (row,) = found(nodes=(made, kept))
    assert (row.source, row.node) == ("Node tgp-p-i-1", "talos-1")


def test_L49_nodes_of_ours_and_of_other_clusters_are_not_theirs() -> None:
    labels = {"tgp.io/nodepool": "p", "tgp.io/provisioned": "true", "tgp.io/instance-id": "i-7", "tgp.io/cluster": "ffffffff"}
    assert found(nodes=(theirs(labels=labels),), instances=()) == ()


def test_L49_what_was_adopted_already_keeps_its_pool() -> None:
    history = ((at("11:00"), "Joining", moving.IMPORTED),)
    mine = claim(instance_id="i-1", node_name=NODE, pool="default/q", history=history)
    (row,) = found(REQUEST, nodes=(theirs(),), claims=(mine,))
    assert (row.pool, row.node, row.problem) == ("default/q", "", "")
    (row,) = found(nodes=(theirs(),), claims=(mine,))
    assert (row.source, row.pool) == (f"claim {mine.name}", "default/q")
    by_hand = claim(instance_id="i-1", node_name=NODE, history=((at("11:00"), "Joining", moving.BY_HAND),))
    assert found(nodes=(theirs(),), claims=(by_hand,)) == ()
    assert moving.is_by_hand(mine) and moving.is_imported(mine) and not moving.is_imported(by_hand)


def test_L49_what_was_handed_out_is_not_asked_for_again() -> None:
    out = (HandedOut("lambda", "i-1", "tgp-a1b2c3d4-p-00001", at("11:00")),)
    assert "it was handed out" in found(REQUEST, nodes=(theirs(),), released=out)[0].problem


@pytest.mark.parametrize(
    ("cloud", "name", "told"),
    [
        ("lambda", "tgp-instance-1753962480", True),
        ("runpod", "tgp-rtx4090-1753962480", True),
        ("gcp", "tgp-ml-workload-pool-1753962480", True),
        ("vultr", "tgp-NVIDIA_A16", True),
        ("vultr", "tgp-a1b2c3d4-p-00001", False),
        ("lambda", "somebodys-box", False),
        ("paperspace", "tgp-instance-1753962480", False),
    ],
)
def test_L49_machines_that_no_object_names_are_told(cloud: str, name: str, told: bool) -> None:
    one = instance(name, cloud=cloud, id="i-9", marks={})
    rows = found(clouds={cloud: CloudView((one,), ())})
    assert [(row.id, bool(row.problem)) for row in rows] == ([("i-9", True)] if told else [])


# ---- the objects


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"instanceId": 7}, "its instance_id is 7, not a text"),
        ({"instanceId": "i-1", "selectedProvider": ["x"]}, "its provider is ['x'], not a text"),
        ("odd", "spec or status is not a mapping"),
    ],
)
def test_L49_a_faulty_object_says_what_is_wrong(status: t.Any, words: str) -> None:
    raw = {"metadata": {"name": "work", "finalizers": ["tgp.io/finalizer"]}, "spec": {"provider": "runpod"}, "status": status}
    request = tgp_operator.request_of(raw)
    assert (request.name, words in request.problem) == ("work", True)


def test_L49_a_request_is_theirs_by_its_finalizer_or_its_machine() -> None:
    def raw(finalizer: str, machine: str = "") -> dict[str, t.Any]:
        return {"metadata": {"name": "x", "finalizers": [finalizer]}, "status": {"instanceId": machine}}

    assert tgp_operator.is_theirs(raw("tgp.io/finalizer")) and tgp_operator.is_theirs(raw("other", "i-1"))
    assert not tgp_operator.is_theirs(raw("tgp.io/gpurequest-finalizer", "i-1"))
    assert not tgp_operator.is_theirs({"metadata": {"name": "x"}})


@pytest.mark.parametrize(
    ("name", "image", "found_out"),
    [
        ("tgp-operator", "x", True),
        ("mine", "ghcr.io/solanyn/tgp-operator:v0.1.38", True),
        ("mine", "registry:5000/tgp-operator@sha256:ab", True),
        ("mine", "ghcr.io/x/tgp-operator-docs:1", False),
    ],
)
def test_L49_a_controller_is_known_by_its_label_or_its_image(name: str, image: str, found_out: bool) -> None:
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    raw = {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": spec}
    assert tgp_operator.is_controller(raw) is found_out


def test_L49_a_list_that_cannot_be_read_raises() -> None:
    class Refuses:
        def pages(self, path: str, _params: t.Any = None) -> t.Iterator[t.Any]:
            raise TgpError(path)

    with pytest.raises(TgpError):
        tgp_operator.read(t.cast("t.Any", Refuses()))
