# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-38: GPUs of DRA drivers. Numbers are those of the worked examples [E] of Kubernetes' scheduling of late 2026."""

from __future__ import annotations

import dataclasses
import typing as t

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    DevicePlugin,
    DevicePlugins,
    Node,
    Phase,
    Placement,
    Plan,
    Pod,
    Pool,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.devices import (
    GPU_DRIVER,
    Amount,
    ClaimChoice,
    ClaimConstraint,
    ClaimRequest,
    DeviceClass,
    DeviceProfile,
    DynamicResources,
    HeldDevice,
    PodClaim,
    ResourceClaim,
    ResourceSlice,
    SemVer,
    SliceDevice,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.emptiness import node_idle
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.device_selectors import NotUnderstood, compiled, verdict
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.gpu_attributes import planned_devices
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import gpus_on, lacks, needs
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.device_plugins import NONE, YES, answer
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.devices import with_devices
from hypothesis import strategies

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs
from .pods import GPU, waiting

TOLERATES = Placement(tolerations=(Toleration(operator="Exists"),), claims=True)
IS_GPU = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
IS_MIG = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
CLASSES = (
    DeviceClass("gpu.nvidia.com", (IS_GPU,)),
    DeviceClass("mig.nvidia.com", (IS_MIG,)),
    DeviceClass("compute-domain-default-channel.nvidia.com", ("device.driver == 'compute-domain.nvidia.com'",)),
)
DRA = pool(dra_driver=GPU_DRIVER)
N1 = "tgp-a1b2c3d4-p-00001"
A100 = "device.attributes['gpu.nvidia.com'].architecture == 'Ampere'"


def memory(least: str) -> str:
    return f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{least}")) >= 0'


def choice(count: int = 1, *selectors: str, device_class: str = "gpu.nvidia.com", **facts: t.Any) -> ClaimChoice:
    return ClaimChoice(device_class, count, selectors, **facts)


def asked(name: str, *choices: ClaimChoice | ClaimRequest, **facts: t.Any) -> ResourceClaim:
    requests = tuple(
        one if isinstance(one, ClaimRequest) else ClaimRequest(f"r{number}", (one,)) for number, one in enumerate(choices)
    )
    return ResourceClaim("default", name, requests, **facts)


def holding(name: str, *devices: str, node: str = N1, admin: bool = False, **facts: t.Any) -> ResourceClaim:
    held = tuple(HeldDevice(GPU_DRIVER, node, device, admin) for device in devices)
    return ResourceClaim("default", name, allocated=True, held=held, node=node, **{"reserved": True, **facts})


def wants(name: str, *claims: str, gpus: int = 0, **facts: t.Any) -> Pod:
    """A pod that waits, with claims of these names."""
    requests = {GPU: gpus} if gpus else {}
    return waiting(
        name, **{"requests": requests, "placement": TOLERATES, "claims": tuple(PodClaim(one) for one in claims), **facts}
    )


def gpu(number: int, *, tainted: bool = False, product: str = "NVIDIA A10", mib: int = 23028, **more: str) -> SliceDevice:
    named = {"type": "gpu", "productName": product, "uuid": f"GPU-{number}", **more}
    attributes = tuple(sorted((f"{GPU_DRIVER}/{name}", value) for name, value in named.items()))
    profile = DeviceProfile(GPU_DRIVER, attributes, ((f"{GPU_DRIVER}/memory", Amount(mib * 1024 * 1024)),))
    return SliceDevice(f"gpu-{number}", profile, tainted)


def slice_of(*devices: SliceDevice, node: str = N1, generation: int = 1, count: int = 1) -> ResourceSlice:
    return ResourceSlice(GPU_DRIVER, node, generation, count, node, devices)


EIGHT = slice_of(*(gpu(number) for number in range(8)))
BARE = node(allocatable={"cpu": 64000})


def found(*claims: ResourceClaim, slices: t.Sequence[ResourceSlice] = (), **facts: t.Any) -> DynamicResources:
    return DynamicResources(**{"classes": CLASSES, "claims": claims, "slices": tuple(slices), **facts})


def translated(dynamic: DynamicResources, *pods: Pod, nodes: t.Sequence[Node] = (BARE,)) -> tuple[Node, list[Pod], tuple[str, ...]]:
    result = with_devices(nodes, pods, dynamic)
    return result.nodes[0], list(result.pods), result.warnings


def scale(dynamic: DynamicResources, *pods: Pod, offers: t.Sequence[t.Any], wanted: Pool = DRA, **facts: t.Any) -> Plan:
    result = with_devices(facts.pop("nodes", ()), pods, dynamic)
    observation = seen(offers=tuple(offers), pods=result.pods, nodes=result.nodes, dynamic=dynamic, **facts)
    return decide(observation, specs(wanted), "autoscale")


def launched(plan: Plan) -> list[str]:
    return [one.claim.offer.id for one in of(plan, "launch") if one.claim]


def why(plan: Plan) -> dict[str, str]:
    return {one.name: one.reason for one in plan.waiting}


# ---- [E] DRA busy: node n1 with gpu-0 to gpu-7


def room(dynamic: DynamicResources, *pods: Pod) -> tuple[int, int]:
    """How many GPUs of n1 are used, and free."""
    there, placed, _warnings = translated(dynamic, *pods)
    free = capacity.of_node(there, placed).free[GPU] or 0
    return there.allocatable[GPU] - free, free


def is_busy(dynamic: DynamicResources, *pods: Pod) -> bool | None:
    there, placed, _warnings = translated(dynamic, *pods)
    return node_idle(claim(), there, placed, DRA, Settings(), NOON).busy


def test_L38_E_dra_busy_1_a_claim_of_a_running_pod_uses_its_devices() -> None:
    user = pod("a", claims=(PodClaim("c1"),), placement=Placement(claims=True))
    state = found(holding("c1", "gpu-0", "gpu-1"), slices=[EIGHT])
    assert room(state, user) == (2, 6) and is_busy(state, user)


def test_L38_E_dra_busy_2_a_finished_pod_leaves_the_node_idle_before_its_claim_is_cleared() -> None:
    user = pod("a", "Succeeded", claims=(PodClaim("c1"),), placement=Placement(claims=True))
    state = found(holding("c1", "gpu-0", "gpu-1"), slices=[EIGHT])
    assert room(state, user) == (2, 6) and is_busy(state, user) is False
    assert room(found(slices=[EIGHT]), user) == (0, 8)


def test_L38_E_dra_busy_3_access_for_administration_uses_nothing() -> None:
    user = pod("d", claims=(PodClaim("c2"),), placement=Placement(claims=True), owner_kind="DaemonSet", owner_api="apps/v1")
    state = found(holding("c2", *(f"gpu-{number}" for number in range(8)), admin=True), slices=[EIGHT])
    assert room(state, user) == (0, 8) and is_busy(state, user) is False


def test_L38_E_dra_busy_4_a_claim_that_three_pods_share_counts_once() -> None:
    users = [pod(name, claims=(PodClaim("c3"),), placement=Placement(claims=True)) for name in "abc"]
    state = found(holding("c3", "gpu-3"), slices=[EIGHT])
    assert room(state, *users) == (1, 7) and is_busy(state, *users)


def test_L38_E_dra_busy_5_a_claim_that_is_reserved_for_nobody_is_told_and_keeps_its_device() -> None:
    state = found(holding("c4", "gpu-4", reserved=False), slices=[EIGHT])
    assert room(state) == (1, 7) and is_busy(state) is False
    assert "ResourceClaim default/c4 keeps 1 of the GPUs" in translated(state)[2][0]


def test_L38_E_dra_busy_6_an_extended_resource_backed_by_dra_counts_once() -> None:
    user = pod("a", requests={GPU: 1}, claims=(PodClaim("x", extended=True),))
    state = found(holding("x", "gpu-5"), slices=[EIGHT])
    assert room(state, user) == (1, 7) and is_busy(state, user)


@pytest.mark.parametrize("generations", [((3, 2), (2, 2), (2, 2)), ((1, 2),)])
def test_L38_E_dra_busy_8_an_incomplete_pool_counts_nothing(generations: t.Sequence[tuple[int, int]]) -> None:
    parts = [slice_of(gpu(number), generation=one, count=count) for number, (one, count) in enumerate(generations)]
    there, _pods, _warnings = translated(found(slices=parts))
    assert there == BARE
    assert not_initialized(claim(), dataclasses.replace(there, ready=True), DRA, marking=True) == ("0 of 1 nvidia.com/gpu",)


def test_L38_E_seven_of_eight_4_a_tainted_device_takes_nothing_new_and_its_pod_stays() -> None:
    eight = slice_of(*(gpu(number, tainted=number == 3) for number in range(8)))
    user = pod("a", claims=(PodClaim("c"),), placement=Placement(claims=True))
    assert room(found(holding("c", "gpu-3"), slices=[eight]), user) == (0, 7)
    assert is_busy(found(holding("c", "gpu-3"), slices=[eight]), user)


def test_L38_mig_devices_are_parts_of_a_gpu_and_not_more_gpus() -> None:
    mig = DeviceProfile(GPU_DRIVER, ((f"{GPU_DRIVER}/parentUUID", "GPU-0"), (f"{GPU_DRIVER}/type", "mig")))
    parts = slice_of(gpu(0), gpu(1), *(SliceDevice(f"gpu-0-mig-1g.5gb-{number}", mig) for number in range(7)))
    assert room(found(slices=[parts])) == (0, 2)
    held = holding("m", "gpu-0-mig-1g.5gb-1", "gpu-0-mig-1g.5gb-2")
    user = pod("a", claims=(PodClaim("m"),), placement=Placement(claims=True))
    assert room(found(held, slices=[parts]), user) == (1, 1)


def test_L38_a_node_with_a_device_plugin_and_a_dra_driver_is_told() -> None:
    there, _pods, warnings = translated(found(slices=[EIGHT]), nodes=[node(allocatable={GPU: 8})])
    assert there.devices is None and "Only one of them may serve a node" in warnings[0]


# ---- [E] pending claim sizes


def wanted(
    *claims: ResourceClaim, of: t.Sequence[str] = (), gpus: int = 0, model: str = "H100-SXM", mib: int = 81920, count: int = 8
) -> int:
    """GPUs that one pod takes of an offer."""
    (asking,) = translated(found(*claims), wants("w", *(of or [one.name for one in claims]), gpus=gpus))[1]
    assert asking.claims_problem == ""
    place = capacity.of_offer(offer(model=model, gpu_count=count, gpu_memory_mib=mib), DRA, node_class(), "c", True)
    return gpus_on(asking, place, (GPU,))


def test_L38_E_pending_claim_sizes_count() -> None:
    assert wanted(asked("c", choice())) == 1
    assert wanted(asked("c", choice(2))) == 2
    assert wanted(asked("c", choice(), choice())) == 2
    assert wanted(asked("c", choice()), of=["c", "c"]) == 1, "two containers that name one claim"
    assert wanted(asked("c", choice()), gpus=1) == 2
    assert wanted(asked("c", choice(admin=True))) == 0


def test_L38_E_pending_claim_sizes_two_pods_with_one_claim_want_one_gpu_on_one_node() -> None:
    two = [offer("0.40", id="one"), offer("1.00", id="two", gpu_count=2)]
    plan = scale(found(asked("c", choice())), wants("a", "c"), wants("b", "c"), offers=two)
    assert launched(plan) == ["one"]
    assert [(pod.name, pod.gpus, bool(pod.machine)) for pod in plan.waiting] == [("a", 1, True), ("b", 0, True)]
    separate = found(asked("c", choice()), asked("d", choice()))
    assert launched(scale(separate, wants("a", "c"), wants("b", "d"), offers=two)) == ["one", "one"]


def test_L38_E_pending_claim_sizes_an_allocated_claim_pins_the_pod_and_rents_nothing() -> None:
    plan = scale(found(holding("c", "gpu-0")), wants("w", "c"), offers=[offer()])
    assert launched(plan) == [] and "is allocated on node tgp-a1b2c3d4-p-00001 already" in why(plan)["w"]


def test_L38_E_pending_claim_sizes_first_available_depends_on_the_offer() -> None:
    either = ClaimRequest("g", (choice(1, "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"), choice(2, A100)))
    assert wanted(asked("c", either)) == 1
    assert wanted(asked("c", either), model="A100-SXM") == 2


def test_L38_E_pending_claim_sizes_all_takes_a_whole_node() -> None:
    assert wanted(asked("c", choice(0)), count=4) == 4


@pytest.mark.parametrize("used", ["used", "tainted"])
def test_L38_E_pending_claim_sizes_all_does_not_fit_beside_a_used_or_tainted_device(used: str) -> None:
    parts = slice_of(*(gpu(number, tainted=used == "tainted" and number == 3) for number in range(8)))
    holder = pod("h", claims=(PodClaim("h"),), placement=Placement(claims=True))
    held = [holding("h", "gpu-1")] if used == "used" else []
    there, pods, _warnings = translated(found(asked("c", choice(0)), *held, slices=[parts]), holder, wants("w", "c"))
    place = capacity.of_node(there, pods)
    assert lacks(needs(pods[1], place), place.free) == GPU
    free = capacity.of_node(translated(found(slices=[EIGHT]))[0], ())
    assert not lacks(needs(pods[1], free), free.free)


@pytest.mark.parametrize(
    ("model", "mib", "least", "rents"),
    [
        ("A100-SXM", 81920, "80Gi", True),
        ("H100-SXM", 81920, "80Gi", False),
        ("H100-SXM", 81920, "79Gi", True),
        ("L40S", 48 * 1024, "40Gi", True),
        ("L40S", 48 * 1024, "46Gi", False),
    ],
)
def test_L38_E_pending_claim_sizes_memory_is_that_of_nvml(model: str, mib: int, least: str, rents: bool) -> None:
    """81,920 MiB of an A100 and 81,559 MiB of an H100. Where NVML's figure is not known, what may be too little is not rented."""
    plan = scale(found(asked("c", choice(1, memory(least)))), wants("w", "c"), offers=[offer(model=model, gpu_memory_mib=mib)])
    assert bool(launched(plan)) is rents, why(plan)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (asked("c", choice(3, device_class="mig.nvidia.com")), "is of MIG devices, which are not supported"),
        (asked("c", choice(2), constraints=(ClaimConstraint((), distinct="a/b"),)), "distinctAttribute a/b is not supported"),
        (asked("c", choice(device_class="compute-domain-default-channel.nvidia.com")), "is not of whole GPUs of gpu.nvidia.com"),
        (asked("c", choice(device_class="nobody")), "device class nobody does not exist"),
        (asked("c", choice(problem="capacity.requests")), "capacity.requests of device class gpu.nvidia.com is not supported"),
        (asked("c", choice(1, "device.attributes['gpu.nvidia.com'].uuid.split('-')[0] == 'x'")), "SelectorNotUnderstood"),
        (
            asked("c", choice(2), constraints=(ClaimConstraint((), "resource.kubernetes.io/pcieRoot"),)),
            "matchAttribute resource.kubernetes.io/pcieRoot is not known before the machine exists",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_L38_E_pending_claim_sizes_what_cannot_be_judged_is_told_per_pod_and_rents_nothing(wish: ResourceClaim, words: str) -> None:
    plan = scale(found(wish), wants("w", "c"), offers=[offer()])
    assert launched(plan) == [] and words in why(plan)["w"]


def test_L38_constraints_that_every_machine_meets_are_met() -> None:
    one = asked("c", choice(1), constraints=(ClaimConstraint((), "resource.kubernetes.io/pcieRoot"),))
    same = asked("d", choice(2), constraints=(ClaimConstraint(("r0",), f"{GPU_DRIVER}/productName"),))
    assert (wanted(one), wanted(same)) == (1, 2)


# ---- which machine


def test_L38_the_cheaper_machine_of_the_wrong_kind_is_left_alone() -> None:
    both = [offer("0.40", id="small"), offer("2.00", id="right", model="A100-SXM", gpu_memory_mib=81920)]
    dynamic = found(asked("c", choice(1, memory("70Gi"))))
    assert launched(scale(dynamic, wants("w", "c"), offers=both)) == ["right"]
    only = scale(dynamic, wants("w", "c"), offers=both[:1])
    assert launched(only) == [] and "its GPUs do not meet" in why(only)["w"]


def test_L38_a_selector_for_what_only_the_machine_will_tell_rents_nothing() -> None:
    dynamic = found(asked("c", choice(1, "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:00'")))
    plan = scale(dynamic, wants("w", "c"), offers=[offer()])
    assert launched(plan) == [] and "cannot be judged: it depends on pcieRoot" in why(plan)["w"]


def test_L38_pods_with_claims_go_to_pools_with_a_dra_driver_alone() -> None:
    dynamic = found(asked("c", choice()))
    plan = scale(dynamic, wants("w", "c"), offers=[offer()], wanted=pool())
    assert launched(plan) == [] and "its GPUs are no devices of gpu.nvidia.com (draDriver)" in why(plan)["w"]
    unread = decide(seen(offers=(offer(),), pods=[wants("w", "c")]), specs(pool()), "autoscale")
    assert launched(unread) == [] and why(unread)["w"] == "it asks for devices by resource claims (DRA), and no pool has draDriver"


@pytest.mark.parametrize(("extended", "rents"), [("", False), (GPU, True)])
def test_L38_a_plain_pod_gets_a_dra_machine_where_a_device_class_names_the_resource(extended: str, rents: bool) -> None:
    classes = (dataclasses.replace(CLASSES[0], extended=extended),)
    plan = scale(found(classes=classes), waiting(placement=dataclasses.replace(TOLERATES, claims=False)), offers=[offer()])
    assert bool(launched(plan)) is rents
    assert rents or "no DeviceClass has extendedResourceName nvidia.com/gpu" in why(plan)["w"]


def test_L38_the_implicit_resource_of_a_class_is_a_claim_of_it() -> None:
    requests = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 2}
    plain = waiting("w", requests=requests, placement=dataclasses.replace(TOLERATES, claims=False))
    plan = scale(found(), plain, offers=[offer(id="one"), offer("0.90", id="two", gpu_count=2)])
    assert launched(plan) == ["two"] and plan.waiting[0].gpus == 2


def test_L38_a_pod_that_the_scheduler_passes_over_is_told_after_a_minute() -> None:
    stuck = wants("w", "gone", waiting="", created=at("11:59"))
    assert (
        "the scheduler does not look at it: ResourceClaim gone does not exist" in why(scale(found(), stuck, offers=[offer()]))["w"]
    )
    assert why(scale(found(), dataclasses.replace(stuck, created=at("11:59:01")), offers=[offer()])) == {}


def test_L38_a_machine_of_a_dra_pool_is_complete_by_its_slices_and_holds_the_pod() -> None:
    made = claim(offer=offer(gpu_count=8))
    state = found(asked("c", choice(8)), slices=[EIGHT])
    plan = scale(state, wants("w", "c"), offers=[offer()], nodes=[BARE], claims=(made,), instances=(instance(),))
    assert launched(plan) == [] and [one.machine for one in plan.waiting] == [made.name]
    coming = claim(phase=Phase.BOOTING, offer=offer(gpu_count=8), launch_started=at("11:55"))
    late = scale(state, wants("w", "c"), offers=[offer()], claims=(coming,), instances=(instance(created=at("11:55:05")),))
    assert launched(late) == [] and late.waiting[0].machine == coming.name


def test_L38_the_neutral_name_is_not_offered_where_a_dra_driver_hands_gpus_out() -> None:
    assert capacity.advertised(claim(), DRA) == 0 and capacity.advertised(claim(), pool()) == 1
    neutral = waiting(requests={"tgp.io/gpu": 1}, placement=dataclasses.replace(TOLERATES, claims=False))
    assert launched(scale(found(), neutral, offers=[offer()])) == []


def test_L38_nothing_is_rented_where_nobody_would_publish_the_devices() -> None:
    driver = DevicePlugin("nvidia", "dra-driver", Placement(tolerations=(Toleration(operator="Exists"),)), dra=True)
    plugin = dataclasses.replace(driver, name="device-plugin", dra=False)

    def word(*plugins: DevicePlugin, dynamic: DynamicResources | None) -> str:
        return answer(DRA, node_class(), DevicePlugins(plugins), (), (GPU,), dynamic).word

    assert word(driver, dynamic=found()) == YES
    assert word(plugin, dynamic=found()) == NONE
    assert word(driver, dynamic=found(served=False)) == NONE
    assert word(driver, dynamic=found(classes=())) == NONE


# ---- selectors

A100_80 = planned_devices("A100-SXM", 81920)[0]
PLANNED = {
    "true": True,
    "'gpu' in ['gpu', 'mig'] && !false": True,
    "device.attributes['gpu.nvidia.com']['productName'] == 'NVIDIA A100-SXM4-80GB'": True,
    'device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*a100.*$")': True,
    'device.attributes["gpu.nvidia.com"].productName.contains("H100")': False,
    'device.attributes["gpu.nvidia.com"].cudaComputeCapability.compareTo(semver("8.0.0")) >= 0': True,
    'device.attributes["gpu.nvidia.com"].cudaComputeCapability.isGreaterThan(semver("8.0.0"))': False,
    "'memory' in device.capacity['gpu.nvidia.com'] && " + memory("80Gi"): True,
    memory("81Gi"): False,
    "device.attributes['gpu.nvidia.com'].uuid == 'GPU-1'": None,
    "device.attributes['gpu.nvidia.com'].uuid == 'GPU-1' && false": False,
    "device.attributes['gpu.nvidia.com'].uuid == 'GPU-1' || true": True,
    "'x' in device.attributes['gpu.nvidia.com']": None,
    "'x' in device.attributes['example.com']": False,
    "device.attributes['example.com'].x == 1": False,
    "device.attributes['gpu.nvidia.com'].type == 1": False,
    "device.attributes['gpu.nvidia.com'].type": False,
    'device.capacity["gpu.nvidia.com"].memory > quantity("1Gi")': False,
    "device.allowMultipleAllocations": None,
    "-1 < 0": True,
}


@pytest.mark.parametrize(("expression", "expected"), PLANNED.items())
def test_L38_selectors_say_yes_no_or_not_known(expression: str, expected: bool | None) -> None:
    assert verdict(expression, A100_80)[0] is expected


@pytest.mark.parametrize(
    "expression",
    ["", "device", "device.foo == 1", "x == 1", "1 + 1 == 2", "cel.bind(x, 1, x == 1)", "true ? true : false", "1.5 > 1", "'a' ==",
     "has(device.attributes)", "device.driver.size() > 1", "quantity('x') == quantity('y')", "semver('1') == semver('2')",
     "[1, 2].exists(x, x == 1)", "device.driver.contains()", "true && (false", "b'x' == b'x'", "(" * 4000, "'a' + 'b' == 'ab'",
     "'" + "x" * 10241 + "' == ''"],
)  # fmt: skip
def test_L38_what_is_not_of_the_subset_is_not_understood(expression: str) -> None:
    with pytest.raises(NotUnderstood):
        compiled(expression)


@hypothesis.given(strategies.text(alphabet="device.attributes[]()'\"=&|!<> gpunvcom10", max_size=60))
def test_L38_no_text_stops_a_run(expression: str) -> None:
    """It is understood, or refused by the one error that is reported per pod."""
    try:
        compiled(expression)
    except NotUnderstood as error:
        assert str(error)
    else:
        assert verdict(expression, A100_80)[0] in (True, False, None)


@pytest.mark.parametrize(
    ("model", "mib", "architecture", "capability"),
    [
        ("A100-PCIE", 40960, "Ampere", (8, 0)), ("A10", 24576, "Ampere", (8, 6)), ("L4", 24576, "Ada Lovelace", (8, 9)),
        ("L40S", 49152, "Ada Lovelace", (8, 9)), ("H100", 81920, "Hopper", (9, 0)), ("GH200", 98304, "Hopper", (9, 0)),
        ("B200", 184320, "Blackwell", (10, 0)), ("RTX4090", 24576, "Ada Lovelace", (8, 9)), ("RTX5090", 32768, "Blackwell", (12, 0)),
        ("RTX6000Ada", 49152, "Ada Lovelace", (8, 9)), ("A6000", 49152, "Ampere", (8, 6)), ("T4", 16384, "Turing", (7, 5)),
        ("V100-SXM2", 16384, "Volta", (7, 0)), ("P100", 16384, "Pascal", (6, 0)), ("P40", 24576, "Pascal", (6, 1)),
        ("RTXPRO6000", 98304, "Blackwell", (12, 0)), ("QUADRO-RTX6000", 24576, "Turing", (7, 5)),
    ],
)  # fmt: skip
def test_L38_models_tell_architecture_and_capability(model: str, mib: int, architecture: str, capability: tuple[int, int]) -> None:
    for profile in planned_devices(model, mib):
        known = dict(profile.attributes)
        assert known[f"{GPU_DRIVER}/architecture"] == architecture
        assert known[f"{GPU_DRIVER}/cudaComputeCapability"] == SemVer(*capability, 0)


def test_L38_an_a1000_is_not_an_a100_and_a_model_without_form_may_be_each() -> None:
    assert "architecture" not in str(planned_devices("A1000", 8192))
    names = {dict(one.attributes)[f"{GPU_DRIVER}/productName"] for one in planned_devices("H100", 81920)}
    assert names == {"NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3"}
    wish = found(asked("c", choice(1, "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100 PCIe'")))
    plan = scale(wish, wants("w", "c"), offers=[offer(model="H100", gpu_memory_mib=81920)])
    assert launched(plan) == [] and "which of several devices it gets" in why(plan)["w"]


# ---- properties


@hypothesis.given(
    strategies.lists(strategies.integers(0, 9), max_size=6),
    strategies.lists(strategies.sampled_from(range(10)), max_size=12),
    strategies.sets(strategies.integers(0, 7)),
)
def test_L38_used_held_and_free_gpus_are_always_all_that_may_be_used(
    counts: list[int], picks: list[int], tainted: set[int]
) -> None:
    parts = slice_of(*(gpu(number, tainted=number in tainted) for number in range(8)))
    claims = [holding(f"c{at}", *(f"gpu-{pick}" for pick in picks[at::6])) for at in range(len(counts))]
    pods = [pod(f"p{at}", claims=(PodClaim(f"c{count % 6}"),), placement=Placement(claims=True)) for at, count in enumerate(counts)]
    used, free = room(found(*claims, slices=[parts]), *pods)
    assert used + free == 8 - len(tainted) and used >= 0 and free >= 0
    held = {f"gpu-{pick}" for at in range(len(counts)) for pick in picks[at::6] if pick < 8 and pick not in tainted}
    assert used == len(held)


@hypothesis.given(strategies.permutations(["a", "b", "c", "d"]), strategies.permutations(["c1", "c2", "c3"]))
def test_L38_the_order_of_what_is_read_changes_nothing(names: list[str], claims: list[str]) -> None:
    uses = {"a": ("c1",), "b": ("c1", "c2"), "c": ("c2",), "d": ("c3",)}
    dynamic = found(*(asked(one, choice(2)) for one in claims))
    _node, pods, _warnings = translated(dynamic, *(wants(name, *uses[name]) for name in names))
    by_name = {one.name: one for one in pods}
    assert {name: bool(one.follows) for name, one in by_name.items()} == {"a": False, "b": True, "c": True, "d": False}
    place = capacity.of_offer(offer(gpu_count=8), DRA, node_class(), "c", True)
    assert gpus_on(by_name["a"], place, (GPU,)) == 4 and gpus_on(by_name["d"], place, (GPU,)) == 2


def test_L38_pods_of_one_claim_that_want_other_nodes_are_told() -> None:
    other = dataclasses.replace(TOLERATES, selector=(("zone", "a"),))
    plan = scale(found(asked("c", choice())), wants("a", "c"), wants("b", "c", placement=other), offers=[offer()])
    assert launched(plan) == [] and all("shares a ResourceClaim" in reason for reason in why(plan).values())


def test_L38_gpus_of_another_vendor_serve_no_claim() -> None:
    plan = scale(found(asked("c", choice())), wants("w", "c"), offers=[offer(model="MI300X")])
    assert launched(plan) == [] and "its GPUs are no devices of gpu.nvidia.com" in why(plan)["w"]
