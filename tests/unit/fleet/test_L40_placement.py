# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-40: topology spread, required pod affinity, anti-affinity over zones and the zones of volumes decide what is rented. Worked numbers, and
the emulated scheduler, which has its own code for the same rules, as the judge of random worlds."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import placement_of
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Expression,
    Node,
    NodeTerm,
    Others,
    Placement,
    Plan,
    Pod,
    PodTerm,
    Spread,
    Taint,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import Bin, Queue, fit
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.offer_selection import buy
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.topology import Topology, around
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.kube.neighbours import Neighbours

from .build import NOON, node, of, offer, pod, pool
from .pods import GPU, waiting
from .test_L17_autoscale import joining, machine, scale, world
from .test_L17_buying import shop

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
IS_X = Expression("app", "In", ("x",))
OF_X = Others(("default",), (IS_X,))
TOLERATES = (Toleration("tgp.io/ephemeral", "Exists"),)


def asks(name: str = "w", gpus: int = 1, **rules: t.Any) -> Pod:
    """A waiting pod with label app: x."""
    return waiting(name, gpus, labels={"app": "x"}, placement=Placement(tolerations=TOLERATES, **rules))


def runs(name: str, where: str, **rules: t.Any) -> Pod:
    """A pod with label app: x that runs there."""
    facts = {"requests": {GPU: 1}, "labels": {"app": "x"}, "placement": Placement(tolerations=TOLERATES, **rules)}
    return pod(name, node=where, owner_kind="Job", **facts)


def zoned(name: str, zone: str, **facts: t.Any) -> Node:
    return node(name, labels={ZONE: zone} if zone else {}, **facts)


def spread(key: str = ZONE, skew: int = 1, **facts: t.Any) -> dict[str, t.Any]:
    return {"spread": (Spread(key, skew, (IS_X,), **facts),)}


def where(nodes: t.Iterable[Node], standing: t.Iterable[Pod], one: Pod) -> list[str]:
    """The nodes that the pods around leave to the pod."""
    nodes = list(nodes)
    there = Topology(nodes, standing)
    return [each.name for each in nodes if not there.against(one, each.name)]


def zone_offer(zone: str, price: str, gpus: int = 1, **facts: t.Any) -> t.Any:
    return offer(price, id=f"{zone or 'nowhere'}-{gpus}", cloud_region=zone, region="", gpu_count=gpus, **facts)


def rented(found: Plan) -> list[str]:
    return [one.claim.offer.id for one in of(found, "launch") if one.claim]


def sees(*pods: Pod, offers: t.Sequence[t.Any], nodes: t.Sequence[Node] = ()) -> Plan:
    """The plan of a run that sees these pods, nodes of others, and offers."""
    return scale(dataclasses.replace(world(*pods, offers=tuple(offers)), nodes=tuple(nodes)))


def why(found: Plan) -> str:
    return " | ".join(one.reason for one in found.waiting if one.reason)


# ---- [E] topology spread

A_AND_B = [zoned("a", "za"), zoned("b", "zb")]
TWO_AND_ONE = [runs("a0", "a"), runs("a1", "a"), runs("b0", "b")]


def test_B07_E1_zones_with_two_and_one_take_the_next_pod_in_the_emptier_one_then_in_either() -> None:
    assert where(A_AND_B, TWO_AND_ONE, asks(**spread())) == ["b"]
    assert where(A_AND_B, [*TWO_AND_ONE, runs("b1", "b")], asks(**spread())) == ["a", "b"]


def test_B07_E2_with_three_domains_demanded_only_a_new_zone_serves() -> None:
    rule = spread(min_domains=3)
    assert where(A_AND_B, TWO_AND_ONE, asks(**rule)) == []
    found = sees(asks(**rule), *TWO_AND_ONE, nodes=A_AND_B, offers=(zone_offer("zb", "0.30"), zone_offer("zc", "0.45")))
    assert rented(found) == ["zc-1"]
    none = sees(asks(**rule), *TWO_AND_ONE, nodes=A_AND_B, offers=(zone_offer("zb", "0.30"),))
    assert rented(none) == [] and why(none) == f"topology spread: 2 of its pods in {ZONE}=zb, 0 elsewhere, maxSkew 1"


def test_B07_E3_four_pods_spread_over_hosts_fit_the_only_host() -> None:
    found = scale(world(*(asks(name, **spread(HOST)) for name in "abcd"), machines=[machine(1, 8)]))
    assert rented(found) == [] and {one.machine for one in found.waiting} == {"tgp-a1b2c3d4-p-00001"}


def test_B07_E4_with_two_hosts_demanded_one_more_is_rented_for_two_of_them() -> None:
    pods = [asks(name, **spread(HOST, min_domains=2)) for name in "abcd"]
    found = scale(world(*pods, machines=[machine(1, 8)], offers=(zone_offer("zb", "0.80", 2),)))
    assert rented(found) == ["zb-2"]
    assert sorted(one.machine == "tgp-a1b2c3d4-p-00001" for one in found.waiting) == [False, False, True, True]


def test_B07_E5_a_host_closed_by_a_taint_counts_as_empty_unless_taints_are_honoured() -> None:
    hosts = [node("h1"), node("h2", taints=(Taint("gpu-broken", "", "NoSchedule"),))]
    there = [runs("p0", "h1")]
    assert where(hosts, there, asks(**spread(HOST))) == ["h2"], "which the taint closes: so a new node"
    assert where(hosts, there, asks(**spread(HOST, honor_taints=True)))[0] == "h1"


def test_B07_E6_schedule_anyway_is_no_rule() -> None:
    entry = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    assert placement_of({"topologySpreadConstraints": [entry]}, "default", {"app": "x"}) == Placement()


def test_B07_nodes_without_the_label_serve_no_pod_that_spreads_over_it() -> None:
    assert where([zoned("a", "za"), zoned("n", "")], [], asks(**spread())) == ["a"]
    found = scale(world(asks(**spread()), offers=(zone_offer("", "0.10"), zone_offer("za", "0.90"))))
    assert rented(found) == ["za-1"]


def test_B07_a_node_that_lacks_the_label_of_one_constraint_is_a_domain_of_none() -> None:
    both = {"spread": (Spread(ZONE, 1, (IS_X,)), Spread("rack", 1, (IS_X,)))}
    racked = node("a", labels={ZONE: "za", "rack": "r"})
    assert where([racked, zoned("b", "zb")], [runs("a0", "a")], asks(**both)) == ["a"]


def test_B07_nodes_that_do_not_suit_the_pod_are_no_domains() -> None:
    """With Honor zone a, where the pod may not run, does not hold the minimum at zero."""
    rules = {"selector": ((ZONE, "zb"),)}
    there = [runs("b0", "b")]
    assert where(A_AND_B, there, asks(**rules, **spread())) == ["a", "b"], "a is kept from it by its selector"
    assert where(A_AND_B, there, asks(**rules, **spread(honor_affinity=False))) == ["a"]


def test_B07_pods_that_are_being_deleted_do_not_count() -> None:
    leaving = [dataclasses.replace(one, deletion=NOON) for one in TWO_AND_ONE]
    assert where(A_AND_B, leaving, asks(**spread())) == where(A_AND_B, TWO_AND_ONE, asks(**spread(skew=2)))


# ---- required pod affinity and anti-affinity over zones

NEAR = {"near": (PodTerm(ZONE, OF_X),)}
APART = {"apart": (PodTerm(ZONE, OF_X),)}
CHEAP_B = (zone_offer("za", "0.90"), zone_offer("zb", "0.30"))


def test_B07_affinity_pays_more_for_the_zone_of_the_pod_that_it_wants() -> None:
    found = sees(asks(**NEAR), runs("p0", "a"), nodes=A_AND_B, offers=CHEAP_B)
    assert rented(found) == ["za-1"]
    none = sees(asks(**NEAR), runs("p0", "a"), nodes=A_AND_B, offers=CHEAP_B[1:])
    assert rented(none) == [] and why(none) == f"required podAffinity: no pod that it wants near is in {ZONE}=zb"


def test_B07_the_first_of_a_group_goes_anywhere_and_the_others_go_where_it_is() -> None:
    offers = (zone_offer("za", "0.90"), zone_offer("zb", "0.30"))
    assert rented(sees(asks("a", **NEAR), asks("b", **NEAR), nodes=A_AND_B, offers=offers)) == ["zb-1", "zb-1"]
    stranger = Placement(tolerations=TOLERATES, **NEAR)
    alone = waiting("s", labels={"app": "y"}, placement=stranger)
    assert rented(sees(alone, nodes=A_AND_B, offers=offers)) == [], "it wants others near, and is none of them"


def test_B07_a_pod_goes_after_one_of_lower_rank_that_it_waits_for() -> None:
    wants_y = {"near": (PodTerm(ZONE, Others(("default",), (Expression("app", "In", ("y",)),))),)}
    first = waiting("a", 2, labels={"app": "x"}, placement=Placement(tolerations=TOLERATES, **wants_y))
    later = waiting("b", 1, labels={"app": "y"}, placement=Placement(tolerations=TOLERATES))
    found = scale(world(first, later, offers=(zone_offer("za", "0.40"), zone_offer("za", "1.60", 4))))
    assert sum(one.claim.offer.gpu_count for one in of(found, "launch") if one.claim) >= 3 and why(found) == ""


def test_B07_anti_affinity_over_zones_takes_one_machine_in_each() -> None:
    pods = [asks(name, **APART) for name in "abc"]
    found = scale(world(*pods, offers=(*CHEAP_B, zone_offer("zb", "0.80", 4))))
    assert sorted(rented(found)) == ["za-1", "zb-1"] and "required podAntiAffinity" in why(found)


def test_B07_a_pod_that_stands_keeps_another_out_of_its_zone() -> None:
    keeper = pod("keeper", node="b", owner_kind="Job", placement=Placement(**APART))
    assert rented(sees(asks(), keeper, nodes=A_AND_B, offers=CHEAP_B)) == ["za-1"]
    other = dataclasses.replace(asks(), labels={"app": "y"})
    assert rented(sees(other, keeper, nodes=A_AND_B, offers=CHEAP_B)) == ["zb-1"]


def test_B07_a_pod_that_waits_for_another_machine_is_not_held_against_a_ready_one() -> None:
    """It fits there only once the second zone has its pod: that it still waits marks no pool as one that does not serve it."""
    made, there, listed = machine(1, 8)
    there = dataclasses.replace(there, labels={**there.labels, ZONE: "za"})
    late, none, boots = joining(2, 1)
    late = dataclasses.replace(late, offer=dataclasses.replace(late.offer, cloud_region="zb"))
    pods = [asks(name, **spread(min_domains=2)) for name in "ab"]
    found = scale(world(*pods, runs("p0", made.name), machines=[(made, there, listed), (late, none, boots)]))
    assert rented(found) == [] and {one.machine for one in found.waiting} == {made.name, late.name}
    assert not [one for one in found.findings if one.startswith("unplaced")]
    plain = scale(world(asks(), machines=[(made, there, listed)]))
    assert [one for one in plain.findings if one.startswith("unplaced")], "one that could go there now is noted"


# ---- volumes: what observe/volumes.py has read is a part of the placement

IN_A = {"reach": ((NodeTerm((Expression(ZONE, "In", ("eu-1a",)),)),),)}
EU = (zone_offer("eu-1b", "0.30"), zone_offer("eu-1a", "0.45"))


def test_B07_E_a_bound_volume_pays_more_for_its_zone() -> None:
    assert rented(scale(world(asks(**IN_A), offers=EU))) == ["eu-1a-1"]
    assert rented(scale(world(asks(), offers=EU))) == ["eu-1b-1"], "an unbound claim without allowedTopologies goes anywhere"


def test_B07_E_an_offer_without_a_zone_does_not_serve_a_volume_of_one() -> None:
    found = scale(world(asks(**IN_A), offers=(zone_offer("", "0.10"),)))
    assert rented(found) == [] and why(found) == f"persistent volume, reachable where {ZONE} In (eu-1a)"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"volumes": ("data",)}, "its persistent volumes were not read, so where they can be reached is unknown"),
        ({"unplaceable": "persistent volume claim data does not exist"}, "persistent volume claim data does not exist"),
    ],
)
def test_B07_a_volume_that_cannot_be_judged_rents_nothing(facts: dict[str, t.Any], words: str) -> None:
    found = scale(world(asks(**facts), offers=EU))
    assert rented(found) == [] and why(found) == words


def test_L19_zone_and_region_of_an_offer_are_labels_of_its_node_unless_it_knows_better() -> None:
    found = scale(world(asks(selector=((ZONE, "eu-1a"),)), offers=EU), pool(labels={}))
    assert rented(found) == ["eu-1a-1"]
    own = scale(world(asks(selector=((ZONE, "mine"),)), offers=EU), pool(labels={ZONE: "mine"}))
    assert rented(own) == ["eu-1b-1"]


# ---- the emulated scheduler as the judge

_keys = st.sampled_from([ZONE, HOST, "rack"])
_selectors = st.sampled_from(
    [{"matchLabels": {"app": "x"}}, {"matchLabels": {"app": "y"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {}]
)
_few = dict(max_size=2)


@st.composite
def _specs(draw: t.Any) -> dict[str, t.Any]:
    """A pod's spec with rules about others."""
    term = st.fixed_dictionaries({"topologyKey": st.sampled_from([ZONE, "rack"]), "labelSelector": _selectors})
    wide = st.fixed_dictionaries({"topologyKey": _keys, "labelSelector": _selectors}, optional={"namespaceSelector": st.just({})})
    rule = st.fixed_dictionaries(
        {"topologyKey": _keys, "maxSkew": st.integers(1, 2), "labelSelector": _selectors},
        optional={
            "whenUnsatisfiable": st.just("DoNotSchedule"),
            "minDomains": st.integers(1, 3),
            "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
            "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
            "matchLabelKeys": st.just(["app"]),
        },
    )
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec: dict[str, t.Any] = {"tolerations": draw(st.sampled_from([[], [{"operator": "Exists"}]]))}
    spec["affinity"] = {
        "podAffinity": {required: draw(st.lists(wide, **_few))},
        "podAntiAffinity": {required: draw(st.lists(term, **_few))},
    }
    spec["topologySpreadConstraints"] = draw(st.lists(rule, **_few))
    if draw(st.booleans()):
        spec["nodeSelector"] = {ZONE: "z0"}
    return spec


@st.composite
def _worlds(
    draw: t.Any, standing: int = 4, looking: int = 1
) -> tuple[list[Node], list[Pod], list[Pod], dict[str, dict[str, t.Any]]]:
    """Nodes, pods on them, pods that look for a place, and all of them in raw form by name."""
    raw: dict[str, dict[str, t.Any]] = {}
    nodes, pods = [], []
    for number in range(draw(st.integers(1, 4))):
        labels = {HOST: f"n{number}"}
        labels |= {ZONE: draw(st.sampled_from(["z0", "z1", "z2"]))} if draw(st.integers(0, 4)) else {}
        labels |= {"rack": "r0"} if draw(st.booleans()) else {}
        taints = (Taint("k", "", "NoSchedule"),) if not draw(st.integers(0, 3)) else ()
        nodes.append(Node(f"n{number}", f"n{number}", pod().created, True, labels=labels, taints=taints, allocatable={GPU: 2}))
        raw[f"n{number}"] = {
            "metadata": {"name": f"n{number}", "labels": labels},
            "spec": {"taints": [dataclasses.asdict(one) for one in taints]},
        }
    for number in range(draw(st.integers(0, standing)) + looking):
        spec, space = draw(_specs()), draw(st.sampled_from(["default", "default", "other"]))
        labels = draw(st.sampled_from([{"app": "x"}, {"app": "x"}, {"app": "y"}, {}]))
        name, on = f"p{number}", "" if number < looking else draw(st.sampled_from(nodes)).name
        raw[name] = {
            "metadata": {"name": name, "namespace": space, "labels": labels, "uid": name},
            "spec": {**spec, "nodeName": on},
        }
        made = pod if on else waiting
        facts = {"namespace": space, "labels": labels, "node": on, "placement": placement_of(spec, space, labels)}
        pods.append(dataclasses.replace(made(name), requests={GPU: 1}, **facts))
    return nodes, pods[looking:], pods[:looking], raw


@settings(deadline=None, max_examples=80)
@given(_worlds())
def test_B07_pods_are_kept_off_as_the_emulated_scheduler_keeps_them_off(found: t.Any) -> None:
    nodes, standing, (one,), raw = found
    there = Neighbours([raw[each.name] for each in standing], {each.name: raw[each.name] for each in nodes})
    ours = Topology(nodes, standing)
    for each in nodes:
        assert bool(ours.against(one, each.name)) == bool(there.obstacle(raw[one.name], each.name)), each.name


class Judge:
    """The emulated scheduler's rules over nodes that come one after the other."""

    def __init__(self, raw: dict[str, t.Any], nodes: t.Iterable[str], standing: t.Iterable[str]) -> None:
        self.raw, self.nodes, self.pods = raw, list(nodes), [raw[name] for name in standing]

    def places(self, wanted: dict[str, str]) -> bool:
        """Put all these pods where they shall be, in some order; False if there is none."""
        if not wanted:
            return True
        there = Neighbours(self.pods, {name: self.raw[name] for name in self.nodes})
        for name, on in wanted.items():
            if not there.obstacle(self.raw[name], on):
                before = self.pods
                self.pods = [*before, {**self.raw[name], "spec": {**self.raw[name]["spec"], "nodeName": on}}]
                if self.places({other: place for other, place in wanted.items() if other != name}):
                    return True
                self.pods = before
        return False


@settings(deadline=None, max_examples=60)
@given(_worlds(standing=3, looking=3), st.lists(st.sampled_from(["z0", "z1", "z2", ""]), min_size=1, max_size=3, unique=True))
def test_B07_every_machine_that_is_rented_can_be_used_by_the_pods_it_is_rented_for(found: t.Any, zones: list[str]) -> None:
    """Machines join in the order in which they are rented: then the emulated scheduler places every pod where the plan counts on it."""
    nodes, standing, looking, raw = found
    bins = [
        Bin(
            one.name,
            {GPU: 1},
            one.labels,
            one.taints,
            node=one.name,
            pods=tuple(each for each in standing if each.node == one.name),
        )
        for one in nodes
    ]
    there = around(nodes, standing, looking)
    packed = fit(looking, bins, GPU_RESOURCES, around=there)
    assert there is None or len(packed.rooms) == len(bins)
    names: list[str] = []
    offers = [offer("0.40", id=zone or "nowhere", gpu_count=2) for zone in zones]

    def place(one: t.Any) -> Bin:
        return Bin(one.id, {GPU: 2}, {} if one.id == "nowhere" else {ZONE: one.id})

    def taken(one: t.Any, _pods: t.Any) -> str:
        names.append(f"new{len(names)}")
        raw[names[-1]] = {"metadata": {"name": names[-1], "labels": {HOST: names[-1], **place(one).labels}}, "spec": {}}
        return names[-1]

    market = dataclasses.replace(shop(*offers), room=place, taken=taken, against=lambda _offer: "")
    bought = buy(Queue(packed.left, GPU_RESOURCES, around=there), [market], packed.rooms)
    name_of = {one.uid: one.name for one in looking}
    judge = Judge(raw, (one.name for one in nodes), (one.name for one in standing))
    assert judge.places({name_of[uid]: on for uid, on in packed.placed.items()})
    settled = {name_of[uid]: on for uid, on in bought.settled.items()}
    for number, purchase in enumerate(bought.purchases):
        judge.nodes.append(names[number])
        assert judge.places({one.name: names[number] for one in purchase.pods})
        settled = {name: on for name, on in settled.items() if on not in judge.nodes or not judge.places({name: on})}
    assert not settled
    rented_for = [one.uid for purchase in bought.purchases for one in purchase.pods]
    assert {*packed.placed, *bought.settled, *rented_for, *(one.uid for one, _why in bought.left)} == set(name_of)
