# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers by generation of GPU and release of Talos (S4-04, S4-29), and what of it stands in a node's configuration."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, MeshChoice
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.gpu_models import known, vendor
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images import nvidia
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.extensions import disagreements
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.nvidia import (
    OPEN,
    PROPRIETARY,
    Generation,
    driver_for,
    mismatches,
)
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import at
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check

from tests.fixtures.talos_nodes import make

RELEASES = ("1.10.9", "1.11.6", "1.12.11", "1.13.9", "1.14.0-rc.1")
CARDS = {Generation.LEGACY: "P100", Generation.TURING: "A100", Generation.BLACKWELL: "B200"}


def test_every_card_of_nvidia_has_a_generation_and_no_other() -> None:
    assert {model for model in known() if nvidia.generation(model) is None} == {
        model for model in known() if vendor(model) == "amd"
    }
    old = {model for model in known() if nvidia.generation(model) is Generation.OLD}
    assert old == {"K20c", "K80", "M40", "GTX750Ti", "GTX970", "GTXTITANX", "QUADRO-K620", "QUADRO-K2200", "QUADRO-M4000"}
    assert nvidia.generation("GTX1660") is Generation.TURING and nvidia.generation("GTX1060") is Generation.LEGACY
    assert nvidia.generation("P104-100") is Generation.LEGACY and nvidia.generation("M60") is None


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("card", CARDS.values())
def test_s4_29_the_driver_that_is_chosen_fits_on_every_release(release: str, card: str) -> None:
    driver = driver_for([card], release)
    assert driver.kind == (PROPRIETARY if card == "P100" else OPEN)
    assert mismatches(driver.extensions(), [card], release) == [] and disagreements(driver.extensions()) == []
    assert driver.branch <= 580 if card == "P100" else driver.branch >= 570


@pytest.mark.parametrize(
    ("models", "release", "expected"),
    [
        (["H100", "L4"], "1.13.9", (OPEN, "production", 595)),
        (["H100"], "1.12.11", (OPEN, "production", 570)),
        (["V100"], "1.13.9", (PROPRIETARY, "lts", 580)),
        (["V100", "A100"], "1.13.9", (PROPRIETARY, "lts", 580)),
        (["P4000"], "1.10.9", (PROPRIETARY, "lts", 535)),
        (["RTX 5090"], "1.11.6", (OPEN, "production", 570)),
        ([], "1.13.9", (OPEN, "production", 595)),
    ],
)
def test_s4_04_one_driver_for_all_cards_of_an_image(models: list[str], release: str, expected: tuple[str, str, int]) -> None:
    driver = driver_for(models, release)
    assert (driver.kind, driver.track, driver.branch) == expected


@pytest.mark.parametrize(
    ("models", "release", "track", "words"),
    [
        (["M40"], "1.13.9", "", "too old"),
        (["P100", "RTX 5090"], "1.13.9", "", "two classes"),
        (["MI300X"], "1.13.9", "", "not made by NVIDIA"),
        (["RTX 4900"], "1.13.9", "", "did you mean"),
        (["V100"], "1.14.0", "production", "no longer knows V100"),
        (["B200"], "1.10.9", "lts", "does not know B200 yet"),
        (["A100"], "1.9.6", "", "not known"),
    ],
)
def test_a_gpu_without_a_matching_driver_is_refused(models: list[str], release: str, track: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        driver_for(models, release, track)


@pytest.mark.parametrize(
    ("names", "model", "words"),
    [
        ([f"{OPEN}-lts"], "P100", "needs nonfree-kmod-nvidia"),
        ([f"{PROPRIETARY}-lts"], "B200", f"needs {OPEN}"),
        ([f"{PROPRIETARY}-production"], "V100", "no longer knows"),
        (["siderolabs/tailscale"], "A100", "no driver of NVIDIA"),
        ([], "K80", "too old"),
        ([f"{PROPRIETARY}-lts"], "A100", ""),
        ([f"siderolabs/{OPEN}-production"], "RTX 4090", ""),
        ([], "MI300X", ""),
    ],
)
def test_an_image_is_judged_by_its_extensions(names: list[str], model: str, words: str) -> None:
    found = mismatches(names, [model], "1.13.9")
    assert words in found[0] if words else found == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"model": "M40"}, "M40 is too old"),
        ({"model": "P100", "extensions": ("siderolabs/tailscale", f"siderolabs/{OPEN}-production")}, "needs nonfree-kmod-nvidia"),
        ({"extensions": (f"siderolabs/{OPEN}-production",)}, "no extension siderolabs/tailscale"),
    ],
)
def test_an_image_that_cannot_serve_the_node_is_refused_before_anything_is_rented(facts: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(make(**facts))
    assert words in str(caught.value)
    assert build(make(**{**facts, "lane": Lane.KUBELET}))  # Ubuntu has drivers of its own
    assert build(make(**{**facts, "gpu_count": 0, "mesh": MeshChoice(backend="none")}))


@pytest.mark.parametrize(
    ("model", "modules"),
    [("A10", 4), ("P100", 4), ("B200", 5), ("a card of tomorrow", 4), ("MI300X", None), ("RX7900XTX", None), ("W7900", None)],
)
def test_nvidia_modules_are_loaded_for_nvidia_alone(model: str, modules: int | None) -> None:
    config = build(make(model=model))[0]
    found = at(config, "machine.kernel.modules")
    assert (None if found is None else len(found)) == modules
    assert at(config, "machine.sysctls") == (None if modules is None else {"kernel.kexec_load_disabled": "1"})


@pytest.mark.parametrize(("release", "set_there"), [("1.10.9", True), ("1.12.11", True), ("1.13.9", False), ("1.14.0", False)])
def test_the_library_before_cdi_gets_what_it_needs(release: str, set_there: bool) -> None:
    sysctls = at(build(make(talos_version=release))[0], "machine.sysctls")
    assert ("net.core.bpf_jit_harden" in sysctls) is set_there and sysctls["kernel.kexec_load_disabled"] == "1"


def test_s3_14_the_runtimes_part_of_the_seed_is_refused_with_the_reason() -> None:
    template = "machine: {files: [{path: /etc/cri/conf.d/20-nvidia.part, op: create, content: x}]}\ncluster: {}\n"
    (problem,) = check(build(make(), template)).errors
    assert "registers the runtime nvidia by itself" in problem
