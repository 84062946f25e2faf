# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of the device plugin (N-02): made from a number (S4-02), or a user's own that is checked."""

from __future__ import annotations

import copy
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import (
    advice,
    faults,
    key_fault,
    of_content,
    of_replicas,
)

WHOLE: dict[str, t.Any] = yaml.safe_load("""
version: v1
flags:
  migStrategy: none
  failOnInitError: false
  nvidiaDriverRoot: "/"
  deviceDiscoveryStrategy: auto
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: [envvar, cdi-cri]
    deviceIDStrategy: uuid
    sharedDevicesAllocationPolicy: packed
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - {name: nvidia.com/gpu, replicas: 4}
""")
MIXED: dict[str, t.Any] = {
    "version": "v1",
    "flags": {"migStrategy": "mixed"},
    "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}]}},
}
SLICING = "sharing.timeSlicing"
FIRST = f"{SLICING}.resources[0]"


def mps(name: str = "nvidia.com/gpu", replicas: int = 4, flags: dict[str, t.Any] | None = None, **more: t.Any) -> dict[str, t.Any]:
    """A configuration that shares GPUs by MPS."""
    shared = {"resources": [{"name": name, "replicas": replicas}], **more}
    return {"version": "v1", "flags": flags or {}, "sharing": {"mps": shared}}


def changed(path: str, value: t.Any) -> dict[str, t.Any]:
    """The whole configuration with one field set, or taken out (None)."""
    content = copy.deepcopy(WHOLE)
    at: t.Any = content
    *steps, last = [int(step) if step.isdigit() else step for step in path.replace("[", ".").replace("]", "").split(".")]
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return content


def test_good_ones_have_no_fault() -> None:
    for content in (WHOLE, MIXED, {"version": "v1"}, of_replicas(1).content, of_replicas(4).content):
        assert faults(content) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "the configuration: a mapping is needed, not a list."),
        (None, "the configuration: a mapping is needed, not nothing."),
        (changed("version", None), "version: this field is missing."),
        (changed("version", "v2"), "version: 'v2' is not possible here. Use v1."),
        (changed("sharring", {}), "sharring: unknown field. Did you mean sharing?"),
        (changed("replicas", 4), "replicas: unknown field. Known here: flags, resources, sharing, version."),
        (changed("timeSlicing", {}), "timeSlicing: unknown field. Did you mean sharing.timeSlicing?"),
        (
            changed("flags.passDeviceSpecs", True),
            "flags.passDeviceSpecs: unknown field. Did you mean flags.plugin.passDeviceSpecs?",
        ),
        (changed("flags.migStrategy", "mix"), "flags.migStrategy: 'mix' is not possible here. Did you mean mixed?"),
        (changed("flags.failOnInitError", "false"), "flags.failOnInitError: true or false is needed, not 'false'."),
        (changed("flags.gfd", {"oneshot": True}), "flags.gfd: GPU Feature Discovery does not run in this DaemonSet."),
        (changed("flags.plugin", "envvar"), "flags.plugin: a mapping is needed, not 'envvar'."),
        (
            changed("flags.plugin.deviceListStrategy", "cdi_cri"),
            "flags.plugin.deviceListStrategy: 'cdi_cri' is not possible here. Did you mean cdi-cri?",
        ),
        (changed("flags.plugin.deviceListStrategy", []), "flags.plugin.deviceListStrategy: it must not be empty."),
        (changed(SLICING + ".resources", None), f"{SLICING}.resources: this field is missing."),
        (changed(SLICING + ".resources", []), f"{SLICING}.resources: it must not be empty. For whole GPUs leave sharing out."),
        (
            changed(FIRST + ".replicas", 1),
            f"{FIRST}.replicas: 1 shares nothing; it must be at least 2. For whole GPUs leave sharing out.",
        ),
        (changed(FIRST + ".replicas", "4"), f"{FIRST}.replicas: a whole number is needed, not '4'."),
        (changed(FIRST + ".replicas", True), f"{FIRST}.replicas: a whole number is needed, not True."),
        (changed(FIRST + ".replica", 4), f"{FIRST}.replica: unknown field. Did you mean replicas?"),
        (changed(FIRST + ".name", "amd.com/gpu"), f"{FIRST}.name: 'amd.com/gpu' cannot be shared; only nvidia.com/gpu, and"),
        (
            changed(FIRST + ".name", "nvidia.com/mig-1g.10gb"),
            f"{FIRST}.name: nvidia.com/mig-1g.10gb exists only with flags.migStrategy: mixed",
        ),
        (changed(FIRST + ".rename", "nvidia.com/slice"), f"{FIRST}.rename: the device plugin ignores it."),
        (changed(FIRST + ".devices", "all"), f"{FIRST}.devices: the device plugin ignores it and shares all GPUs of the node."),
        (changed(FIRST + ".pattern", "*3090*"), f"{FIRST}.pattern: the device plugin selects no GPUs by a pattern"),
        (changed("resources", {"gpus": [{"pattern": "*", "name": "nvidia.com/gpu"}]}), "resources: the device plugin ignores it"),
        (changed("sharing.mps", {"resources": []}), "sharing.mps.resources: it must not be empty"),
        (
            changed("sharing.mps", {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}),
            "sharing: mps and timeSlicing exclude",
        ),
        (
            mps(name="nvidia.com/mig-1g.10gb"),
            "sharing.mps.resources[0].name: 'nvidia.com/mig-1g.10gb' cannot be shared by MPS; only",
        ),
        (mps(replicas=49), "sharing.mps.resources[0].replicas: 49 is more than MPS serves; it must be at most 48, and 16 on a GPU"),
        (mps(replicas=1), "sharing.mps.resources[0].replicas: 1 shares nothing"),
        (
            mps(failRequestsGreaterThanOne=False),
            "sharing.mps.failRequestsGreaterThanOne: False is not possible; MPS gives a request one",
        ),
        (
            mps(flags={"migStrategy": "mixed"}),
            "sharing.mps: the device plugin has no MPS with MIG, and flags.migStrategy is mixed.",
        ),
        (
            changed(SLICING + ".resources", [{"name": "nvidia.com/gpu", "replicas": 2}] * 2),
            f"{SLICING}.resources[1].name: nvidia.com/gpu is listed twice.",
        ),
    ],
)
def test_each_fault_is_one_sentence_with_its_place(content: t.Any, sentence: str) -> None:
    (found,) = faults(content)
    assert found.startswith(sentence)


def test_all_faults_are_listed() -> None:
    content = changed(FIRST, {"name": "nvidia.com/gpu", "replicas": 0, "rename": "x"})
    content["flags"]["plugin"]["deviceIDStrategy"] = "name"
    assert len(faults(content)) == 3


def test_what_a_configuration_makes_a_node_show() -> None:
    whole = of_content(WHOLE)
    assert whole.advertised(2) == ("nvidia.com/gpu.shared", 8) and whole.cdi and not whole.device_specs
    assert of_replicas(4).advertised(2) == ("nvidia.com/gpu", 8)
    assert of_replicas(1).advertised(2) == ("nvidia.com/gpu", 2) and "sharing" not in of_replicas(1).content
    assert of_content(MIXED).mig == "mixed" and of_content(MIXED).advertised(2) == ("nvidia.com/gpu", 2)
    assert of_content({"version": "v1", "sharing": {"timeSlicing": {"renameByDefault": True, "resources": []}}}).advertised(1) == (
        "nvidia.com/gpu",
        1,
    )


def test_a_number_of_replicas_fails_requests_for_two_and_a_file_that_does_not_is_advised() -> None:
    assert of_replicas(4).content["sharing"]["timeSlicing"]["failRequestsGreaterThanOne"] is True and advice(of_replicas(4)) == []
    (sentence,) = advice(of_content(changed(SLICING + ".failRequestsGreaterThanOne", None)))
    assert "failRequestsGreaterThanOne is not true" in sentence
    assert yaml.safe_load(of_replicas(4).text) == of_replicas(4).content


@pytest.mark.parametrize(
    ("key", "good"),
    [("a100", True), ("rtx-3090", True), ("A100", False), ("config.yaml", False), ("-a", False), ("", False), ("a" * 41, False)],
)
def test_names_of_further_configurations_are_part_of_names_of_objects(key: str, good: bool) -> None:
    assert bool(key_fault(key)) is not good


def test_L52_mps_is_read_as_it_is_written() -> None:
    assert faults(mps()) == faults(mps(replicas=48, renameByDefault=True, failRequestsGreaterThanOne=True)) == []
    made = of_replicas(4, renamed=True, mps=True)
    assert made.mps and made.content["sharing"].keys() == {"mps"} and faults(made.content) == []
    assert made.advertised(2) == ("nvidia.com/gpu.shared", 8) and not of_replicas(4).mps
    assert advice(of_content(mps())) == [], "a request for two is refused, whatever failRequestsGreaterThanOne says"
