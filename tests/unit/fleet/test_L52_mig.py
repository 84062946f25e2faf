# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-52: GPUs that MIG divides: which instances one GPU holds, which machines are rented for them, and when a node of them is complete."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import faults
from ansible_collections.tgp.gpu.plugins.module_utils.model import AcceptanceTest, Offer, Phase, Plan, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims import record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import gpu_models, mig_profiles
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.mig_profiles import against, nowhere, shapes
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.mig_profiles import place as lay
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import acceptance
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity
from hypothesis import given
from hypothesis import strategies as st

from .build import at, claim, node, node_class, of, offer, pod, pool, specs
from .pods import GPU
from .test_L17_autoscale import asks, launched, machine, reasons, scale, world

H100: t.Final = {"model": "H100-SXM", "gpu_memory_mib": 81559}
MEDIA: t.Final = "nvidia.com/mig-1g.10gb.me"
SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{one}" for one in ("1g.10gb", "2g.20gb", "3g.40gb"))
SEVEN, BALANCED = pool(mig=(("1g.10gb", 7),)), pool(mig=(("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)))
WITH_MEDIA = pool(mig=(("1g.10gb", 6), ("1g.10gb+me", 1)))
ONE = offer("2.00", id="one", **H100)
EIGHT = offer("15.00", id="eight", gpu_count=8, instance_type="gpu_8x", **H100)


def wants(name: str, resource: str = SMALL, number: int = 1) -> Pod:
    return asks(name, requests={resource: number})


def many(number: int, resource: str = SMALL) -> list[Pod]:
    return [wants(f"{resource[-7:-2]}-{place:02d}", resource) for place in range(number)]


# ---- what one GPU holds


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        ({"1g.10gb": 7}, True),
        ({"1g.10gb": 8}, False),
        ({"1g.20gb": 4}, True),
        ({"1g.20gb": 4, "1g.10gb": 1}, False),
        ({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, True),
        ({"2g.20gb": 3, "1g.10gb": 1}, True),
        ({"2g.20gb": 3, "1g.10gb": 2}, False),
        ({"3g.40gb": 2}, True),
        ({"3g.40gb": 2, "1g.10gb": 1}, False),
        ({"4g.40gb": 1, "3g.40gb": 1}, True),
        ({"4g.40gb": 2}, False),
        ({"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}, True),
        ({"7g.80gb": 1}, True),
        ({"7g.80gb": 1, "1g.10gb": 1}, False),
        ({"1g.5gb": 1}, False),
        ({"1g.10gb+me": 1}, True),
        ({"1g.10gb+me": 2}, False),
        ({"1g.10gb+me": 1, "1g.10gb": 6}, True),
        ({"1g.10gb+me": 1, "1g.10gb": 7}, False),
        ({"1g.10gb+me": 1, "1g.20gb": 3}, True),
        ({"1g.10gb+me": 1, "1g.20gb": 4}, False),
        ({"1g.10gb+me": 1, "2g.20gb": 3}, True),
        ({"1g.10gb+me": 1, "1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}, True),
        ({"1g.10gb+me": 1, "3g.40gb": 2}, False),
        ({"1g.20gb+me": 1}, False),
        ({"1g.10gb+gfx": 1}, False),
        ({"1g.10gb-me": 1}, False),
    ],
)
def test_L52_E_what_an_h100_of_80_gb_holds(layout: dict[str, int], fits: bool) -> None:
    assert bool(not against("H100-SXM", 81559, layout)) is fits


@pytest.mark.parametrize(
    ("model", "memory", "layout", "fits"),
    [
        ("A100-SXM", 40960, {"1g.5gb": 7}, True),
        ("A100-SXM", 81920, {"1g.5gb": 7}, False),
        ("A100-SXM", 40960, {"1g.10gb": 4}, True),
        ("A100-SXM", 40960, {"1g.10gb": 5}, False),
        ("A100-PCIE", 81920, {"1g.10gb": 7}, True),
        ("A100-SXM", None, {"1g.10gb": 1}, False),
        ("A30", 24576, {"1g.6gb": 4}, True),
        ("A30", 24576, {"2g.12gb": 1, "1g.6gb": 2}, True),
        ("A30", 24576, {"2g.12gb": 1, "1g.6gb": 3}, False),
        ("A30", None, {"4g.24gb": 1}, True),
        ("H100-NVL", 95830, {"1g.12gb": 7}, True),
        ("H200", 143771, {"1g.18gb": 7}, True),
        ("H200", 143771, {"1g.18gb": 5, "2g.35gb": 1}, True),
        ("B200", 184320, {"1g.23gb": 7}, True),
        ("RTXPRO6000", 97887, {"1g.24gb": 4}, True),
        ("RTXPRO6000", 97887, {"1g.24gb": 2, "2g.48gb": 1}, True),
        ("RTXPRO6000", 97887, {"1g.24gb": 3, "2g.48gb": 1}, False),
        ("A30", 24576, {"1g.6gb+me": 1, "1g.6gb": 3}, True),
        ("A30", 24576, {"2g.12gb+me": 1, "1g.6gb": 2}, True),
        ("A30", 24576, {"2g.12gb+me": 1, "1g.6gb+me": 1}, False),
        ("A100-SXM", 40960, {"1g.5gb+me": 1, "1g.5gb": 6}, True),
        ("A100-SXM", 40960, {"1g.10gb+me": 1}, False),
        ("H100-NVL", 95830, {"1g.12gb+me": 1, "1g.12gb": 6}, True),
        ("H200", 143771, {"1g.18gb+me": 1}, True),
        ("B200", 184320, {"1g.23gb+me": 1, "1g.23gb": 6}, True),
        ("RTXPRO6000", 97887, {"1g.24gb+gfx": 4}, True),
        ("RTXPRO6000", 97887, {"2g.48gb+gfx": 1, "1g.24gb+gfx": 1, "1g.24gb+me": 1}, True),
        ("RTXPRO6000", 97887, {"1g.24gb+me": 2}, False),
        ("RTXPRO6000", 97887, {"1g.24gb+me.all": 1, "1g.24gb-me": 3}, True),
        ("RTXPRO6000", 97887, {"1g.24gb+me.all": 1, "1g.24gb": 1}, False),
        ("RTXPRO6000", 97887, {"2g.48gb+me.all": 1, "2g.48gb-me": 1}, True),
        ("RTXPRO6000", 97887, {"2g.48gb+me.all": 1, "1g.24gb+me": 1}, False),
        ("RTXPRO6000", 97887, {"4g.96gb+gfx": 1}, True),
        ("RTXPRO6000", 97887, {"4g.96gb+me": 1}, False),
        ("A10", 24576, {"1g.6gb": 1}, False),
        ("RTXPRO6000-MIG-1G", 24576, {"1g.24gb": 1}, False),
        ("", None, {"1g.10gb": 1}, False),
    ],
)
def test_L52_E_what_other_models_hold(model: str, memory: int | None, layout: dict[str, int], fits: bool) -> None:
    why = against(model, memory, layout)
    assert bool(not why) is fits, why


@pytest.mark.parametrize(("memory", "known"), [(73728, True), (73727, False), (90112, True), (90113, False)])
def test_L52_the_memory_that_a_provider_names_may_differ_by_ten_per_cent(memory: int, known: bool) -> None:
    """Of the 80 GiB of an H100 PCIe."""
    assert (shapes("H100-PCIE", memory) is not None) is known


def test_L52_of_two_sizes_that_fit_the_nearer_is_taken() -> None:
    assert "1g.10gb" in (shapes("H100", 87040) or {}) and "1g.12gb" in (shapes("H100", 90112) or {})


def test_L52_what_is_unknown_says_so_and_holds_nothing() -> None:
    assert against("A10", 24576, {"1g.6gb": 1}) == "the MIG profiles of A10 with 24576 MiB are not known"
    assert "1 × 1g.5gb: it has no profile 1g.5gb, only 1g.10gb, 1g.20gb" in against("H100-SXM", 81559, {"1g.5gb": 1})
    lacking = "H100-SXM cannot hold 2 × 1g.10gb+me: only one instance of a GPU has media extensions"
    assert against("H100-SXM", 81559, {"1g.10gb+me": 2}) == lacking
    assert against("H100-SXM", 81559, {"1g.10gb": 1, "3g.40gb": 2}).endswith(": these take 9 memory slices, and it has 8")
    assert against("H100-SXM", 81559, {"4g.40gb": 2}).endswith(": their memory slices would overlap")
    assert against("RTXPRO6000", 97887, {"1g.24gb+me.all": 1, "1g.24gb": 1}).endswith(
        ": these take 5 media engines of each kind, and it has 4"
    )
    assert nowhere({"1g.10gb": 1, "9g.99gb": 1}) == f"no model of the table of {mig_profiles.READ} has MIG profile 9g.99gb"


def test_L52_every_model_of_the_table_is_one_that_offers_name() -> None:
    for models, gib, forms, plain, others in mig_profiles._TABLE:
        names = f"{plain} {others}".split()
        assert len(plain.split()) == len(forms) and all(mig_profiles.NAME.fullmatch(name) for name in names)
        for model in models:
            assert gpu_models.vendor(model) == "nvidia" and (shapes(model, gib * 1024) or {}).keys() == set(names)


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("1g.10gb+me", MEDIA),
        ("1g.24gb+gfx", "nvidia.com/mig-1g.24gb.gfx"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
    ],
)
def test_L52_E_the_resource_of_a_profile_is_spelled_as_the_device_plugin_does(profile: str, resource: str) -> None:
    """A plus sign is no character of a resource's name. The role's own check of a configuration knows the same names."""
    assert mig_profiles.NAME.fullmatch(profile) and mig_profiles.resource(profile) == resource
    content = {
        "version": "v1",
        "flags": {"migStrategy": "mixed"},
        "sharing": {"timeSlicing": {"resources": [{"name": resource, "replicas": 2}]}},
    }
    assert faults(content) == []


FORMS = {" ".join(forms): forms for _models, _gib, forms in mig_profiles._ROWS}
LAYOUTS = st.sampled_from(sorted(FORMS)).flatmap(
    lambda names: st.tuples(st.just(names), st.dictionaries(st.sampled_from(names.split()), st.integers(1, 4), min_size=1))
)


@given(LAYOUTS)
def test_L52_instances_lie_at_their_places_and_never_on_each_other(drawn: tuple[str, dict[str, int]]) -> None:
    forms, wanted = FORMS[drawn[0]], drawn[1]
    laid = lay(wanted, forms)
    if laid is None:
        return
    assert {name: sum(one == name for one, _start in laid) for name in wanted} == wanted
    taken = [start + step for name, start in laid for step in range(forms[name].memory)]
    assert len(taken) == len(set(taken)) and max(taken) < max(form.memory for form in forms.values())
    assert all(start in forms[name].starts for name, start in laid)
    assert sum(forms[name].compute for name, _start in laid) <= max(form.compute for form in forms.values())
    assert sum("+me" in name for name, _start in laid) <= 1
    if any(name.endswith("+me.all") for name, _start in laid):
        assert all(name.endswith(("+me.all", "-me")) for name, _start in laid)


@given(LAYOUTS)
def test_L52_what_is_refused_fits_in_no_order(drawn: tuple[str, dict[str, int]]) -> None:
    """Against every choice of starts; and less of what fits fits, too."""
    forms, wanted = FORMS[drawn[0]], drawn[1]
    names = [name for name, number in wanted.items() for _one in range(number)]
    if len(names) <= 5:
        choices = itertools.product(*(forms[name].starts for name in names))
        engines = sum(forms[name].media for name in names) <= max(form.media for form in forms.values())
        single = sum(forms[name].extended for name in names) <= 1
        possible = engines and single and any(_apart(names, starts, forms) for starts in choices)
        assert (lay(wanted, forms) is not None) is possible
    for name in wanted if lay(wanted, forms) is not None else ():
        assert lay({**wanted, name: wanted[name] - 1}, forms) is not None


def _apart(names: list[str], starts: tuple[int, ...], forms: dict[str, mig_profiles.Shape]) -> bool:
    taken = [start + step for name, start in zip(names, starts, strict=True) for step in range(forms[name].memory)]
    return len(taken) == len(set(taken))


# ---- which machines are rented


@pytest.mark.parametrize(
    ("pods", "layout", "machines"),
    [
        (many(1), SEVEN, 1),
        (many(7), SEVEN, 1),
        (many(8), SEVEN, 2),
        (many(15), SEVEN, 3),
        (many(5, LARGE), pool(mig=(("3g.40gb", 2),)), 3),
        ([*many(2), *many(1, MIDDLE), *many(1, LARGE)], BALANCED, 1),
        ([*many(2), *many(1, MIDDLE), *many(2, LARGE)], BALANCED, 2),
        ([*many(5), *many(1, MIDDLE)], BALANCED, 3),
        ([wants("three", SMALL, 3)], SEVEN, 1),
        ([*many(6), *many(1, MEDIA)], WITH_MEDIA, 1),
        ([*many(6), *many(2, MEDIA)], WITH_MEDIA, 2),
        (many(3, MEDIA), WITH_MEDIA, 3),
        (many(7), WITH_MEDIA, 2),
    ],
)
def test_L52_E_packing_decides_how_many_machines_are_rented(pods: list[Pod], layout: t.Any, machines: int) -> None:
    found = scale(world(*pods, offers=(ONE,)), layout)
    assert launched(found) == [1] * machines and not reasons(found)


def test_L52_E_the_price_counts_for_each_instance_that_is_used() -> None:
    """56 pods: one machine of eight GPUs at 15.00 costs less than eight at 2.00 each; for 7 pods one small one does."""
    assert launched(scale(world(*many(56), offers=(ONE, EIGHT)), SEVEN)) == [8]
    assert launched(scale(world(*many(7), offers=(ONE, EIGHT)), SEVEN)) == [1]


def test_L52_only_a_model_that_holds_the_layout_is_rented() -> None:
    cheap: tuple[Offer, ...] = (
        offer("0.40", id="a10"),
        offer("0.90", id="a100", model="A100-SXM", gpu_memory_mib=40960),
        offer("0.50", id="part", model="RTXPRO6000-MIG-1G", gpu_memory_mib=24576),
        offer("0.60", id="size", model="A100-SXM"),
    )
    found = scale(world(wants("a"), offers=(*cheap, ONE)), SEVEN)
    assert [one.claim.offer.id for one in of(found, "launch") if one.claim] == ["one"]
    none = scale(world(wants("a"), offers=cheap), SEVEN)
    assert launched(none) == [] and list(reasons(none).values()) == ["no offer: mig profiles"]
    floor = scale(world(offers=cheap), dataclasses.replace(SEVEN, min_nodes=1))
    assert launched(floor) == [], "nor for minNodes"


def test_L52_a_pod_is_told_what_no_machine_of_the_pools_has() -> None:
    other = scale(world(wants("a", LARGE), offers=(ONE,)), SEVEN)
    assert launched(other) == [] and list(reasons(other).values()) == [f"no machine with 1 {LARGE}"]
    odd = scale(world(wants("a", "nvidia.com/mig-9g.99gb"), offers=(ONE,)), SEVEN)
    assert list(reasons(odd).values()) == ["no machine with 1 nvidia.com/mig-9g.99gb"]
    too_many = scale(world(wants("a", SMALL, 8), offers=(ONE,)), SEVEN)
    assert list(reasons(too_many).values()) == [f"no machine with 8 {SMALL}"]
    whole = scale(world(wants("a"), offers=(ONE,)), pool())
    assert list(reasons(whole).values()) == [f"no machine with 1 {SMALL}"], "a pool without mig has whole GPUs"


def test_L52_whole_gpus_and_the_neutral_name_are_not_served_by_divided_ones() -> None:
    room = capacity.of_offer(ONE, SEVEN, node_class(), "a1b2c3d4", True)
    assert {name: amount for name, amount in room.free.items() if "/" in name} == {SMALL: 7}
    for asked in ({GPU: 1}, {"tgp.io/gpu": 1}):
        assert launched(scale(world(asks("a", requests=asked), offers=(ONE,)), SEVEN)) == []
    both = (SEVEN, pool("whole"))
    assert [one.claim.pool for one in of(scale(world(asks("a"), offers=(ONE,)), specs(*both)), "launch") if one.claim] == [
        "default/whole"
    ]


def test_L52_a_machine_on_its_way_and_a_ready_one_are_used_before_another_is_rented() -> None:
    coming = claim(phase=Phase.BOOTING, offer=ONE, launch_started=at("11:55"), expected_gpus=7)
    assert launched(scale(world(*many(7), machines=[(coming, None, None)], offers=(ONE,)), SEVEN)) == []
    there = _machine({SMALL: 7})
    assert launched(scale(world(*many(7), machines=[there], offers=(ONE,)), SEVEN)) == []
    taken = pod("busy", node=there[1].name, requests={SMALL: 4})
    assert launched(scale(world(taken, *many(3), machines=[there], offers=(ONE,)), SEVEN)) == []
    assert launched(scale(world(taken, *many(4), machines=[there], offers=(ONE,)), SEVEN)) == [1]


# ---- when a node is complete, and when it lacks some


def _machine(allocatable: dict[str, int], expected: int = 7) -> tuple[t.Any, ...]:
    made, shown, itself = machine(allocatable=allocatable, claim={"expected_gpus": expected})
    return dataclasses.replace(made, offer=ONE), shown, itself


def missing(allocatable: dict[str, int], layout: t.Any = BALANCED, expected: int = 4, **facts: t.Any) -> list[str]:
    mine = claim(phase=Phase.JOINING, offer=ONE, expected_gpus=expected, **facts)
    return [one for one in not_initialized(mine, node(allocatable=allocatable), layout) if "mig" in one.lower()]


def test_L52_a_node_is_complete_with_every_instance_of_every_profile() -> None:
    whole = {SMALL: 2, MIDDLE: 1, LARGE: 1}
    assert missing(whole) == [] and missing({**whole, GPU: 0}) == []
    assert missing({GPU: 1}) == [f"0 of 2 {SMALL}", f"0 of 1 {MIDDLE}", f"0 of 1 {LARGE}"], "MIG has not divided it yet"
    assert missing({**whole, LARGE: 0}) == [f"0 of 1 {LARGE}"]
    assert missing({SMALL: 7}) == [f"0 of 1 {MIDDLE}", f"0 of 1 {LARGE}"], "seven are more than four, and not those"
    assert missing({SMALL: 1}, dataclasses.replace(BALANCED, gpu_wait="any")) == []
    assert missing({GPU: 1}, dataclasses.replace(BALANCED, gpu_wait="any")) == ["0 of 1 MIG instances"]
    assert missing({GPU: 1}, dataclasses.replace(BALANCED, gpu_wait="none")) == []
    assert missing({SMALL: 7}, BALANCED, expected=7) == [], "launched before the layout changed"
    assert missing({SMALL: 6, MEDIA: 1}, WITH_MEDIA, expected=7) == []
    assert missing({SMALL: 7}, WITH_MEDIA, expected=7) == [f"0 of 1 {MEDIA}"], "a plugin before v0.20 counts both under one name"


@pytest.mark.parametrize(
    ("allocatable", "expected", "lacking"),
    [
        ({SMALL: 7, GPU: 0}, 1, False),
        ({SMALL: 7, GPU: 7}, 8, False),
        ({LARGE: 2}, 1, False),
        ({GPU: 0}, 1, True),
        ({SMALL: 0, GPU: 0}, 1, True),
        ({GPU: 7}, 8, True),
    ],
)
def test_L52_a_machine_of_an_unknown_pool_may_be_divided(allocatable: dict[str, int], expected: int, lacking: bool) -> None:
    """Its pool's document is gone, and the record was made anew: what it was to show is not known. Instances are GPUs that are there."""
    mine = claim(phase=Phase.JOINING, offer=ONE, expected_gpus=expected)
    found = [one for one in not_initialized(mine, node(allocatable=allocatable), None) if GPU in one]
    assert bool(found) is lacking, found


def reaped(allocatable: dict[str, int], layout: t.Any, expected: int = 7, now: str = "15:00", **facts: t.Any) -> Plan:
    used = pod("busy", node="tgp-a1b2c3d4-p-00001", requests={SMALL: 1})
    keys = {f"{one}|lambda|tgp-a1b2c3d4-p-00001": at("14:00") for one in ("GpusMissing", "GpuLost")}
    observed = world(used, machines=[_machine(allocatable, expected)], now=at(now), findings=keys, **facts)
    return scale(observed, layout)


def test_L52_instances_that_are_gone_count_as_missing_gpus() -> None:
    assert not of(reaped({SMALL: 7}, SEVEN), "taint", "destroy")
    fewer = reaped({SMALL: 6}, SEVEN)
    assert of(fewer, "taint") and "6 of its 7 GPUs" in of(fewer, "report")[0].detail


@pytest.mark.parametrize(
    ("allocatable", "layout", "expected"),
    [({GPU: 1}, SEVEN, 1), ({SMALL: 7, GPU: 0}, pool(), 7), ({SMALL: 7}, pool(), 1)],
)
def test_L52_a_layout_that_comes_or_goes_ends_no_machine(allocatable: dict[str, int], layout: t.Any, expected: int) -> None:
    found = reaped(allocatable, layout, expected)
    assert not of(found, "destroy", "taint")


def test_L52_a_pod_with_an_instance_keeps_its_node_and_an_empty_one_goes() -> None:
    there = _machine({SMALL: 7})
    idle = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}
    there = (there[0], dataclasses.replace(there[1], annotations=idle), there[2])
    used = pod("busy", node=there[1].name, requests={SMALL: 1})
    gpu_mode = dataclasses.replace(SEVEN, idle_mode="gpu")
    assert not of(scale(world(used, machines=[there]), gpu_mode), "destroy")
    (gone,) = of(scale(world(pod("plain", node=there[1].name), machines=[there]), gpu_mode), "destroy")
    assert gone.reason == "Empty"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (AcceptanceTest(), [{LARGE: "1"}, {SMALL: "1"}, {SMALL: "1"}, {MIDDLE: "1"}]),
        (AcceptanceTest(image="own"), [{LARGE: "1"}, {SMALL: "1"}, {SMALL: "1"}, {MIDDLE: "1"}]),
        (AcceptanceTest(gpus="one"), [{LARGE: "1"}]),
    ],
)
def test_L52_the_acceptance_test_runs_on_each_instance(test: AcceptanceTest, expected: list[dict[str, str]]) -> None:
    described = dataclasses.replace(BALANCED, acceptance=test)
    mine = claim(phase=Phase.JOINING, offer=ONE, expected_gpus=4)
    shown = node(allocatable={SMALL: 2, MIDDLE: 1, LARGE: 1})
    body = acceptance.pod(mine, shown, described, test, "tgp-system", "a1b2c3d4")
    limits = [one["resources"]["limits"] for one in body["spec"]["containers"]]
    assert sorted(map(str, limits)) == sorted(map(str, expected)) if test.gpus != "one" else len(limits) == 1


def test_L52_a_claim_remembers_the_layout_when_its_document_is_gone() -> None:
    made = record.follow(claim(), dataclasses.replace(SEVEN, source="x"), node_class())
    read = record.from_record(record.to_record(made))
    assert read.limits is not None and read.limits.mig == (("1g.10gb", 7),)
    assert (record.remembered(read) or pool()).mig == SEVEN.mig
