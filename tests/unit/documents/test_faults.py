# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong documents: every fault is found, named with its place, and met with a remedy; nothing is accepted and ignored."""

from __future__ import annotations

import copy
import pathlib
import typing as t
from decimal import Decimal

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.model import Machine, Placement, Requirement
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.capacity import taints
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.node_affinity import against_taints

Json = dict[str, t.Any]
SEEDS = pathlib.Path(__file__).parents[2] / "fixtures" / "seeds"
CLASS: Json = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodeClass",
    "metadata": {"name": "base"},
    "spec": {"providers": [{"name": "lambda"}], "limits": {"maxNodes": 3, "maxHourlyCost": "9"}},
}
POOL: Json = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodePool",
    "metadata": {"name": "training"},
    "spec": {"nodeClassRef": {"kind": "GPUNodeClass", "name": "base"}, "maxHourlyPrice": "1.50"},
}
REQUEST: Json = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPURequest",
    "metadata": {"name": "quick"},
    "spec": {"gpuType": "A10", "maxHourlyPrice": "2"},
}
BASES = {"GPUNodeClass": CLASS, "GPUNodePool": POOL, "GPURequest": REQUEST}


def with_(base: Json, path: str, value: t.Any) -> Json:
    made = copy.deepcopy(base)
    *steps, last = path.split(".")
    here: t.Any = made
    for step in steps:
        here = here[int(step)] if step.isdigit() else here.setdefault(step, {})
    here[last] = value
    return made


def problems(*documents: Json, **more: t.Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse([Document(f"file-{place}.yaml", one) for place, one in enumerate(documents, 1)], **more)
    return caught.value.problems


def test_S0_13_the_samples_of_the_seed_are_read_as_they_stand() -> None:
    documents = [Document(path.name, yaml.safe_load(path.read_text())) for path in sorted(SEEDS.glob("s0-*.yaml"))]
    specs, warnings = parse(documents)
    made, pool = specs.classes["standard-gpu-class"], specs.pools[0]
    assert [(one.cloud, one.priority, one.enabled) for one in made.clouds] == [("runpod", 1, True), ("lambda", 2, True)]
    assert made.clouds[1].credentials is not None and made.clouds[1].credentials.namespace == "tgp-system"
    assert made.gpu_types == ("RTX4090", "RTX3090") and made.spot_allowed
    assert (made.max_nodes, made.max_hourly_cost) == (10, Decimal("50.0"))
    assert (made.mesh.tags, made.mesh.ephemeral, made.mesh.accept_routes) == (("tag:k8s", "tag:gpu"), True, True)
    assert made.talos_image.endswith("talos:v1.10.5") and made.template is not None and "{{.MachineToken}}" in made.template
    assert pool.key == "default/ml-workload-pool" and pool.max_hourly_price == Decimal("2.0") and pool.weight == 10
    assert pool.requirements[1] == Requirement("tgp.io/region", "In", ("us-west", "us-east"))
    assert str(pool.taints[0]) == "gpu-node=true:NoSchedule"
    assert not warnings


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("GPUNodePool", "spec.maxHourlyPrce", "1", "spec.maxHourlyPrce: unknown field. Did you mean maxHourlyPrice?"),
        ("GPUNodePool", "spec.maxNodes", 1, "spec.maxNodes: unknown field. Did you mean spec.limits.maxNodes?"),
        ("GPUNodePool", "spec.max_hourly_price", "1", "Did you mean maxHourlyPrice?"),
        ("GPUNodePool", "spec.zzz", 1, "unknown field. Known in spec: "),
        ("GPUNodePool", "colour", "red", "colour: unknown field."),
        ("GPUNodePool", "spec.maxHourlyPrice", "-1", 'spec.maxHourlyPrice: "-1" is not a possible amount.'),
        (
            "GPUNodePool",
            "spec.maxHourlyPrice",
            1.5,
            "spec.maxHourlyPrice: text or a whole number is needed, not a number (1.5). Write dollars",
        ),
        ("GPUNodePool", "spec.maxHourlyPrice", "cheap", '"cheap" is not an amount.'),
        ("GPUNodePool", "spec.weight", -1, "spec.weight: -1 is too small; it must be at least 0."),
        ("GPUNodePool", "spec.weight", "high", "spec.weight: a whole number is needed, not text ('high')."),
        ("GPUNodePool", "spec.nodeClassRef.name", "bsae", "there is no class 'bsae'. Known are base."),
        ("GPUNodePool", "spec.nodeClassRef.kind", "NodeClass", "Did you mean GPUNodeClass?"),
        ("GPUNodePool", "spec.drainTimeout", "1d", '"1d" is not a duration.'),
        ("GPUNodePool", "spec.drainTimeout", "Never", "spec.drainTimeout:"),
        ("GPUNodePool", "spec.disruption", {"consolidateAfter": "-5m"}, '"-5m" is not a duration.'),
        ("GPUNodePool", "spec.limits", {"maxNodes": 1}, ""),
        ("GPUNodePool", "metadata.name", "Big_Pool", "is not at most 63 lower-case letters"),
        ("GPUNodePool", "spec.disruption", {"consolidationPolicy": "Whenidle"}, "Did you mean WhenIdle?"),
        ("GPUNodePool", "apiVersion", "tgp.io/v2", "apiVersion: 'tgp.io/v2' is not possible here. Did you mean tgp.io/v1?"),
        ("GPUNodeClass", "spec.providers", [], "spec.providers: it must not be empty."),
        ("GPUNodeClass", "spec.providers", [{"name": "lamda"}], "there is no cloud 'lamda'. Did you mean lambda?"),
        ("GPUNodeClass", "spec.providers", [{"name": "lambda"}, {"name": "lambda-labs"}], "lambda is listed twice."),
        ("GPUNodeClass", "spec.providers", [{"name": "runpod", "enabled": False}], "none is enabled."),
        ("GPUNodeClass", "spec.providers", [{"priority": 1}], "spec.providers[0].name: this field is missing."),
        (
            "GPUNodeClass",
            "spec.providers.0.settings",
            {"sshkey": "x"},
            "spec.providers[0].settings.sshkey: unknown field. Did you mean sshKey?",
        ),
        ("GPUNodeClass", "spec.providers.0.settings", {"sshKey": 5}, "5 is not of type 'string'"),
        ("GPUNodeClass", "spec.providers.0.machines", [], ""),
        ("GPUNodeClass", "spec.providers", [{"name": "webhook"}], "no machines are listed."),
        (
            "GPUNodeClass",
            "spec.instanceRequirements",
            {"gpuTypes": ["RTX409"]},
            "'RTX409' is not a known GPU model. Did you mean RTX4090?",
        ),
        ("GPUNodeClass", "spec.instanceRequirements", {"minGpuMemory": "lots"}, "'lots' is not an amount of memory."),
        ("GPUNodeClass", "spec.tailscaleConfig", {"tags": ["gpu"]}, "spec.tailscaleConfig.tags[0]: 'gpu' is not a tag like"),
        ("GPUNodeClass", "spec.tailscaleConfig", {"advertiseRoutes": ["10.0.0.1/8"]}, "has host bits set"),
        ("GPUNodeClass", "spec.tailscaleConfig", {"hostname": "x"}, "the host name of a machine is always its own name"),
        ("GPUNodeClass", "spec.limits.maxHourlyCost", "-0.01", "is not a possible amount"),
        ("GPUNodeClass", "spec.talosConfig", {"machineConfigTemplateFile": "no.yaml"}, "cannot be read"),
        (
            "GPUNodeClass",
            "spec.talosConfig",
            {"machineConfigTemplate": "a", "templateRef": {"name": "a", "key": "b"}},
            "exclude each other",
        ),
        (
            "GPUNodeClass",
            "spec.limits.resources",
            {"nvidia.com/gpus": 8},
            "'nvidia.com/gpus' is not counted, so it would limit nothing.",
        ),
        ("GPUNodePool", "spec.limits", {"resources": {"tgp.io/gpu": 8}}, "Use nvidia.com/gpu or amd.com/gpu."),
        ("GPUNodePool", "spec.limits", {"resources": {"amd.com/gpu": 8}}, ""),
        ("GPUNodePool", "spec.registrationTimeout", "Never", '"Never" is not allowed here.'),
        ("GPUNodePool", "spec.minNodes", 2.0, "spec.minNodes: a whole number is needed, not a number (2.0)."),
        ("GPUNodePool", "spec.timeSlicing", {"replicas": 4.0}, "spec.timeSlicing.replicas: a whole number is needed"),
        ("GPUNodeClass", "spec.providers.0.settings", {"region": 1.0}, "spec.providers[0].settings"),
        (
            "GPUNodePool",
            "spec.template",
            {"metadata": {"labels": {True: "a", "b": "c"}}},
            "the key True is not text. Write it in quotes.",
        ),
        ("GPUNodeClass", "spec.limits", {5: 1, "maxNods": 2}, "spec.limits: the key 5 is not text."),
        ("GPUNodeClass", "spec.limits.maxHourlyCost", "1_5", "is not an amount"),
        ("GPUNodeClass", "spec.limits.maxHourlyCost", "1e40", "is not a possible amount"),
        ("GPUNodeClass", "spec.strategy", ["cheapest"], "spec.strategy: ['cheapest'] is not possible here."),
        ("GPUNodePool", "spec.budget", {"period": {}, "amount": "5"}, "spec.budget.period: {} is not possible here."),
        ("GPUNodePool", "spec.budget", {"period": "day", "amount": "0"}, "A budget of 0 lets nothing be launched."),
        ("GPUNodePool", "spec.budget", {"period": "day", "amount": "0.01"}, ""),
        ("GPUNodeClass", "spec.talosConfig", {"machineConfigTemplateFile": "a\x00b"}, "cannot be read"),
        ("GPURequest", "spec.gpuType", "RX 580", "'RX 580' is not a known GPU model."),
        ("GPURequest", "spec.credentialsRef", {"name": "a", "key": "b"}, "provider must name it"),
    ],
)
def test_faults_name_source_place_and_remedy(kind: str, path: str, value: t.Any, words: str) -> None:
    wrong = with_(BASES[kind], path, value)
    documents = [CLASS, wrong] if kind != "GPUNodeClass" else [wrong]
    if not words:
        parse([Document("x", one) for one in documents])
        return
    found = problems(*documents)
    assert any(words in one for one in found), found
    assert all(one.startswith(f"file-{len(documents)}.yaml: ") for one in found)


REQUIREMENTS = "spec.template.spec.requirements"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"key": "tgp.io/gpu-typ", "operator": "In", "values": ["A10"]}, "Did you mean tgp.io/gpu-type?"),
        ({"key": "tgp.io/gpu-type", "operator": "in", "values": ["A10"]}, "Did you mean In?"),
        ({"key": "tgp.io/gpu-type", "operator": "In", "values": []}, "In needs at least one value."),
        ({"key": "tgp.io/gpu-type", "operator": "Exists", "values": ["A10"]}, "Exists takes no values."),
        ({"key": "tgp.io/gpu-type", "operator": "Gt", "values": ["1"]}, "Gt compares numbers"),
        ({"key": "tgp.io/gpu-count", "operator": "Gt", "values": ["1", "2"]}, "Gt needs exactly one value."),
        ({"key": "tgp.io/gpu-count", "operator": "Gt", "values": ["1.5"]}, "'1.5' is not a whole number"),
        ({"key": "tgp.io/gpu-count", "operator": "Gt", "values": [1]}, "text is needed"),
        ({"key": "tgp.io/provider", "operator": "In", "values": ["lamda"]}, "Did you mean lambda?"),
        ({"key": "tgp.io/gpu-type", "operator": "In", "values": ["4O90"]}, "is not a known GPU model"),
        ({"key": "tgp.io/gpu-count", "operator": "In", "values": ["two"]}, 'is a whole number; write it like "2".'),
        ({"key": "tgp.io/gpu-memory", "operator": "In", "values": ["24Gi"]}, 'is a whole number, in MiB; write it like "24576".'),
        ({"key": "tgp.io/spot", "operator": "NotIn", "values": ["True"]}, 'tgp.io/spot is "true" or "false".'),
        ({"key": "tgp.io/reliability", "operator": "Gte", "values": ["95"]}, 'write 95 per cent as "0.95"'),
    ],
)
def test_S0_35_requirements_are_checked(entry: Json, words: str) -> None:
    assert any(words in one for one in problems(CLASS, with_(POOL, REQUIREMENTS, [entry])))


@pytest.mark.parametrize(("value", "told"), [("24", True), ("1023", True), ("1024", False), ("0", False), ("24576", False)])
def test_S0_35_gib_where_mib_are_meant_are_warned_about(value: str, told: bool) -> None:
    entry = {"key": "tgp.io/gpu-memory", "operator": "Gte", "values": [value]}
    _specs, warnings = parse([Document("a", CLASS), Document("b", with_(POOL, REQUIREMENTS, [entry]))])
    assert any("are MiB, and no GPU has so few" in one for one in warnings) is told


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"metadata": {"labels": {"team": "A team"}}}, "metadata.labels: 'A team' is not a label value"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/gpu": "-x"}}}, "metadata.labels: '-x' is not a label value"),
        ({"metadata": {"labels": {"my team": "a"}}}, "metadata.labels: 'my team' is not a label key"),
        ({"metadata": {"labels": {"tgp.io/provisioned": "false"}}}, "tgp.io/provisioned is set by the collection itself"),
        ({"metadata": {"annotations": {"my team": "any text"}}}, "metadata.annotations: 'my team' is not a key of an annotation"),
        ({"metadata": {"annotations": {"team": "any text"}}}, ""),
        ({"metadata": {"labels": {"node-role.kubernetes.io/gpu": "", "example.org/team": "a.b_c-1"}}}, ""),
        ({"spec": {"taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "taints[0]: 'a b' is not a key of a taint"),
        ({"spec": {"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]}}, "taints[0]: 'b c' is not a label value"),
        ({"spec": {"taints": [{"key": "tgp.io/disrupted", "effect": "NoSchedule"}]}}, "tgp.io/disrupted is set by the collection"),
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}] * 2}},
            "taints[1]: there are two taints a with effect NoExecute",
        ),
        ({"spec": {"taints": [{"key": "a", "effect": one} for one in ("NoExecute", "NoSchedule")]}}, ""),
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "a", "effect": "NoExecute"}]}},
            "startupTaints[0]: a is among taints, too, which stay: the node would never be complete.",
        ),
        ({"spec": {"taints": [{"key": "tgp.io/ephemeral", "effect": "NoExecute"}]}}, ""),
    ],
)
def test_L19_marks_that_no_node_can_carry_are_refused_before_one_is_rented(template: Json, words: str) -> None:
    wrong = with_(POOL, "spec.template", template)
    if not words:
        parse([Document("x", CLASS), Document("y", wrong)])
        return
    assert any(words in one for one in problems(CLASS, wrong))


def test_S0_20_S0_30_other_spellings_are_understood() -> None:
    entries = [
        {"key": "tgp.io/provider", "operator": "In", "values": ["Lambda Labs"]},
        {"key": "tgp.io/gpu-type", "operator": "In", "values": ["NVIDIA GeForce RTX 4090"]},
        {"key": "tgp.io/reliability", "operator": "Gte", "values": ["0.98"]},
    ]
    specs, _warnings = parse([Document("a", CLASS), Document("b", with_(POOL, REQUIREMENTS, entries))])
    assert [one.values for one in specs.pools[0].requirements] == [("lambda",), ("RTX4090",), ("0.98",)]


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        ("GPUNodeClass", "spec.calendar", "hours are those of a pool; write spec.calendar in each GPUNodePool"),
        ("GPUNodeClass", "spec.networking.tailscale", "networking.backend tailscale is the whole switch"),
        ("GPUNodeClass", "spec.networking.wireguard", "write it as spec.wireguardConfig"),
        ("GPUNodeClass", "spec.limits.budget", "write it as spec.budget"),
        ("GPUNodePool", "spec.schedule", "write the hours of a pool as spec.calendar"),
        ("GPUNodePool", "spec.nodes", "spec.replicas for an exact number or spec.minNodes for a floor"),
        ("GPURequest", "spec.service", "template.spec.service of a GPUNodePool"),
        ("GPURequest", "spec.nodes", "in a GPUNodePool"),
    ],
)
def test_D06_what_has_another_name_or_place_here_is_told_so(kind: str, path: str, words: str) -> None:
    (found,) = problems(*([CLASS] if kind == "GPUNodePool" else []), with_(BASES[kind], path, {}))
    assert f"{path}: " in found and words in found and found.endswith(".") and "yet" not in found


def test_D06_kubespan_is_a_matter_of_the_talos_configuration() -> None:
    (found,) = problems(with_(CLASS, "spec.networking.backend", "kubespan"))
    assert "write it into the template or the patches of talosConfig, and networking.backend none" in found


def test_D06_no_pool_rents_by_the_experimental_lane() -> None:
    (found,) = problems(CLASS, with_(POOL, "spec.template.spec.lanes", ["takeover"]))
    assert "spec.template.spec.lanes[0]: takeover: no pool rents by it" in found and "Use one of talos, kubelet, service." in found


def test_all_faults_of_all_documents_are_told_at_once() -> None:
    found = problems(with_(CLASS, "spec.limits.maxNodes", -1), with_(POOL, "spec.maxHourlyPrice", "x"), {"kind": "GPUNodPool"}, {})
    assert [one.split(":")[0] for one in found] == ["file-1.yaml", "file-3.yaml", "file-4.yaml", "file-2.yaml"]
    assert "Did you mean GPUNodePool?" in found[1] and "this field is missing" in found[2]


def test_names_are_unique() -> None:
    assert "two classes named base" in problems(CLASS, CLASS)[0]
    assert "two pools named default/training" in problems(CLASS, POOL, POOL)[0]
    elsewhere = with_(POOL, "metadata.namespace", "research")
    assert [one.key for one in parse([Document("a", CLASS), Document("b", POOL), Document("c", elsewhere)])[0].pools] == [
        "default/training",
        "research/training",
    ]


def test_L16_missing_limits_and_a_price_beyond_them_are_warned_about() -> None:
    _specs, warnings = parse([Document("a", with_(CLASS, "spec.limits", {})), Document("b", POOL)])
    assert [one.split(": ")[1] for one in warnings] == ["spec.limits.maxNodes", "spec.limits.maxHourlyCost"]
    _specs, warnings = parse([Document("a", CLASS), Document("b", with_(POOL, "spec.maxHourlyPrice", "9.01"))])
    assert len(warnings) == 1 and "above the class's maxHourlyCost" in warnings[0]
    _specs, warnings = parse([Document("a", CLASS), Document("b", POOL)])
    assert warnings == []


def test_floor_above_the_limit_is_refused() -> None:
    wrong = with_(with_(POOL, "spec.limits", {"maxNodes": 1}), "spec.minNodes", 2)
    assert "2 is above limits.maxNodes 1" in problems(CLASS, wrong)[0]


def test_the_floor_of_a_window_above_the_limit_is_refused() -> None:
    limited = with_(POOL, "spec.limits", {"maxNodes": 2})
    window = {"from": "08:00", "to": "18:00"}
    parse([Document("a", CLASS), Document("b", with_(limited, "spec.calendar", {"windows": [{**window, "minNodes": 2}]}))])
    found = problems(CLASS, with_(limited, "spec.calendar", {"windows": [window, {**window, "minNodes": 3}]}))
    assert any("spec.calendar.windows[1].minNodes: 3 is above limits.maxNodes 2." in one for one in found)


def test_objects_exported_from_a_cluster_are_read() -> None:
    exported = copy.deepcopy(POOL)
    exported["metadata"].update(
        uid="1", resourceVersion="2", generation=3, creationTimestamp="2026-08-20T00:00:00Z", managedFields=[]
    )
    exported["status"] = {"phase": "Ready"}
    assert parse([Document("a", CLASS), Document("b", exported)])[0].pools[0].name == "training"


def test_fingerprints_follow_what_a_machine_is_made_of() -> None:
    def made(base: Json, pool: Json = POOL) -> tuple[str, str]:
        specs, _warnings = parse([Document("a", base), Document("b", pool)])
        return specs.classes["base"].generation, specs.pools[0].generation

    same = made(CLASS)
    assert made(with_(CLASS, "spec.limits.maxNodes", 7), with_(POOL, "spec.weight", 3)) == same
    assert made(with_(CLASS, "spec.talosConfig", {"image": "x"}))[0] != same[0]
    assert made(CLASS, with_(POOL, "spec.template.metadata.labels", {"a": "b"}))[1] != same[1]


# ---- how many, and own machines given otherwise


def test_numbers_wanted_name_pools() -> None:
    documents = [Document("a", CLASS), Document("b", POOL), Document("c", REQUEST)]
    assert parse(documents, nodes={"training": 3})[0].nodes == {"default/training": 3}
    assert parse(documents, nodes={"default/training": 0})[0].nodes == {"default/training": 0}
    for nodes, words in (
        ({"trainnig": 1}, "trainnig is not a pool. Known are: default/training, tgp-system/quick."),
        ({"training": -1}, "-1 is not a number of machines"),
        ({"training": True}, "is not a number of machines"),
        ({"quick": 2}, "is a GPURequest, which is always one machine"),
    ):
        assert words in problems(CLASS, POOL, REQUEST, nodes=nodes)[0]
    twins = (CLASS, POOL, with_(POOL, "metadata.namespace", "other"))
    assert "names several pools" in problems(*twins, nodes={"training": 1})[0]


def own(name: str) -> Machine:
    return Machine(name, 4, "http://power.test/on", "http://power.test/off")


def test_S2_12_node_groups_alone_make_a_class_and_a_pool() -> None:
    specs, warnings = parse([], machines=[own("gpu-worker-1"), own("gpu-worker-2")])
    pool = specs.pools[0]
    assert (pool.key, pool.idle_mode, pool.min_nodes) == ("default/node-groups", "gpu", 0) and not warnings
    made = specs.classes["node-groups"]
    assert [one.name for one in made.clouds[0].machines] == ["gpu-worker-1", "gpu-worker-2"]
    assert (made.mesh.backend, made.max_nodes) == ("none", 2)
    assert against_taints(Placement(), taints(pool)) == "", "pods come as they are, without tolerations"


def test_S2_12_node_groups_go_to_the_class_that_asks() -> None:
    asking = with_(CLASS, "spec.providers", [{"name": "webhook"}])
    assert (
        parse([Document("a", asking)], machines=[own("gpu-worker-1")])[0].classes["base"].clouds[0].machines[0].name
        == "gpu-worker-1"
    )
    assert "no GPUNodeClass takes gpu-worker-1" in problems(CLASS, machines=[own("gpu-worker-1")])[0]
    two = with_(asking, "metadata.name", "second")
    assert "the classes base and second both have it" in problems(asking, two, machines=[own("gpu-worker-1")])[0]


def test_every_fault_of_a_document_is_told_at_once() -> None:
    """What the schema refuses hides nothing of what only reading finds, and what is left out is no second fault."""
    wrong = with_(POOL, "spec.maxHourlyPrice", 1.5)
    wrong = with_(wrong, "spec.limits", {"maxNodes": "five"})
    wrong = with_(wrong, "spec.minNodes", 2)
    wrong = with_(wrong, "spec.disruption", {"consolidateAfter": "10 minutes"})
    gpus = {"key": "tgp.io/gpu-type", "operator": "In", "values": ["A1000"]}
    wrong = with_(wrong, "spec.template.spec.requirements", [{"key": "tgp.io/gpu-memory", "operator": "Gt", "values": 16000}, gpus])
    wrong = with_(wrong, "spec.nodeClassRef", {"nam": "base"})
    found = problems(CLASS, wrong)
    places = [one.split(": ")[1] for one in found]
    requirements = "spec.template.spec.requirements"
    assert sorted(places) == [
        "spec.disruption.consolidateAfter", "spec.limits.maxNodes", "spec.maxHourlyPrice", "spec.nodeClassRef.nam",
        "spec.nodeClassRef.name", f"{requirements}[0].values", f"{requirements}[1].values[0]",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", BASES)
def test_a_document_of_which_nothing_is_right_says_so_once(kind: str) -> None:
    found = problems({"apiVersion": "v1", "kind": kind, "metadata": [], "spec": "all"})
    assert len(found) == len({one.split(": ")[1] for one in found}) == 3


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        (
            "GPUNodeClass",
            "spec.instanceRequirements",
            {"regions": ["us-west", "us-wset"]},
            "regions[1]: there is no region 'us-wset'.",
        ),
        ("GPURequest", "spec.region", "eu-wets", "spec.region: there is no region 'eu-wets'. Did you mean eu-west?"),
        (
            "GPUNodePool",
            "spec.template.spec.requirements",
            [{"key": "tgp.io/region", "operator": "NotIn", "values": ["us-esat"]}],
            "requirements[0].values[0]: there is no region 'us-esat'. Did you mean us-west or us-east?",
        ),
    ],
)
def test_a_mistyped_region_is_refused(kind: str, path: str, value: t.Any, words: str) -> None:
    others = [CLASS] if kind == "GPUNodePool" else []
    assert any(words in one for one in problems(*others, with_(BASES[kind], path, value)))


def test_regions_of_clouds_and_of_own_machines_are_taken_as_they_stand() -> None:
    own = {
        "name": "rack-1",
        "gpuCount": 1,
        "scaleUpEndpoint": "http://u/1",
        "scaleDownEndpoint": "http://d/1",
        "region": "us-wesst",
    }
    made = with_(CLASS, "spec.providers", [{"name": "webhook", "machines": [own]}])
    regions = ["us-wesst", "us-tx-3", "europe-central-1", "Sweden, SE", "us", "asia-pacific", "NY2"]
    pool = with_(POOL, "spec.template.spec.requirements", [{"key": "tgp.io/region", "operator": "In", "values": regions}])
    specs, _warnings = parse([Document("c", with_(made, "spec.instanceRequirements", {"regions": regions})), Document("p", pool)])
    assert specs.classes["base"].regions == tuple(regions)
