# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models, clouds and regions by their many names."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import gpu_models
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.requirements import (
    misspelt_region,
    region_matches,
    standard_region,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES, canonical_cloud, cloud_suggestions
from hypothesis import given
from hypothesis import strategies as st

_LINES = (pathlib.Path(__file__).parent / "gpu_names.txt").read_text(encoding="utf-8").splitlines()[1:]
CLOUD_NAMES = [(name, line.partition(": ")[0]) for line in _LINES for name in line.partition(": ")[2].split("|")]


def test_every_name_that_a_cloud_uses_is_understood() -> None:
    assert len(CLOUD_NAMES) > 150
    wrong = {name: gpu_models.canonical(name) for name, model in CLOUD_NAMES if gpu_models.canonical(name) != model}
    assert not wrong


@pytest.mark.parametrize("model", gpu_models.known())
def test_canonical_names_are_their_own_canonical_names(model: str) -> None:
    assert gpu_models.canonical(model) == gpu_models.canonical(model.lower()) == gpu_models.canonical(f"NVIDIA {model}") == model
    assert gpu_models.vendor(model) in ("nvidia", "amd")
    assert gpu_models.memory_sizes_mib(model)


@pytest.mark.parametrize(
    ("text", "model", "memory"),
    [
        ("RTX4090", "RTX4090", None),
        ("rtx 4090", "RTX4090", None),
        ("rtx-4090", "RTX4090", None),
        ("NVIDIA GeForce RTX 4090", "RTX4090", None),
        ("NVIDIA-GeForce-RTX-4090-SHARED", "RTX4090", None),
        ("A10 (24 GB PCIe)", "A10", 24576),
        ("1x A10 (24 GB PCIe)", "A10", 24576),
        ("8x A100 (80 GB SXM4)", "A100-SXM", 81920),
        ("A100 (40 GB PCIe)", "A100-PCIE", 40960),
        ("gpu_8x_a100_80gb_sxm4", "A100-SXM", 81920),
        ("gpu_8x_h100_sxm5gdr", "H100-SXM", None),
        ("b200_sxm6", "B200", None),
        ("Tesla V100 (16 GB)", "V100", 16384),
        ("RTX 6000 (24 GB)", "QUADRO-RTX6000", 24576),
        ("RTX 6000 Ada", "RTX6000Ada", None),
        ("RTX A6000 (48 GB)", "A6000", 49152),
        ("V100-32Gx2", "V100", 32768),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", "RTXPRO6000-MIG-1G", None),
        ("A100 80GB", "A100", 81920),
    ],
)
def test_texts_that_name_a_model(text: str, model: str, memory: int | None) -> None:
    assert gpu_models.parse(text) == gpu_models.Gpu(model, memory)


@pytest.mark.parametrize("text", ["", "N/A", "cpu_4x_general", "4090", "RTX4909", "nonsense", "nvidia", "GB", "8x"])
def test_texts_that_name_none(text: str) -> None:
    assert gpu_models.canonical(text) is None


@pytest.mark.parametrize(
    ("text", "first"), [("RTX4909", "RTX4090"), ("4090", "RTX4090"), ("H10O", "H100"), ("gtx1080 tii", "GTX1080Ti")]
)
def test_suggestions(text: str, first: str) -> None:
    assert gpu_models.suggestions(text)[0] == first
    assert len(gpu_models.suggestions(text)) <= 3


def test_suggestions_are_empty_for_what_resembles_nothing() -> None:
    assert gpu_models.suggestions("banana") == ()


@pytest.mark.parametrize(
    ("model", "memory"), [("RTX4090", 24576), ("A10", 24576), ("B200", 184320), ("A100-SXM", None), ("R500", None)]
)
def test_memory_is_unknown_where_two_sizes_are_sold(model: str, memory: int | None) -> None:
    assert gpu_models.memory_mib(model) == memory


@pytest.mark.parametrize(
    ("spec", "model", "memory", "expected"),
    [
        ("A100", "A100-SXM", 40960, True),
        ("A100", "A100-PCIE", None, True),
        ("A100-SXM", "A100-PCIE", None, False),
        ("A100 80GB", "A100-SXM", 40960, False),
        ("A100 80GB", "A100-SXM", 81920, True),
        ("A100 80GB", "A100-SXM", None, True),
        ("A100-SXM", "A100", None, False),
        ("H100", "H100-NVL", None, True),
        ("V100", "V100-SXM2", 16384, True),
        ("A10", "A100-SXM", None, False),
        ("RTX3060", "RTX3060-LAPTOP", None, False),
        ("RTX3060", "RTX3060Ti", None, False),
        ("RTXPRO6000", "RTXPRO6000-MIG-1G", None, False),
        ("no such card", "A10", None, False),
    ],
)
def test_S0_30_wishes(spec: str, model: str, memory: int | None, expected: bool) -> None:
    assert gpu_models.matches(spec, model, memory) is expected


@given(st.text(max_size=60))
def test_any_text_can_be_asked(text: str) -> None:
    found = gpu_models.parse(text)
    assert found is None or found.model in gpu_models.known()
    gpu_models.suggestions(text)
    canonical_cloud(text)
    standard_region(text)


@pytest.mark.parametrize(
    ("name", "cloud"),
    [
        ("lambda", "lambda"),
        ("lambdalabs", "lambda"),
        ("lambda-labs", "lambda"),
        ("lambda_labs", "lambda"),
        ("LambdaLabs", "lambda"),
        ("vast", "vast"),
        ("vast.ai", "vast"),
        ("vastai", "vast"),
        ("runpod", "runpod"),
        ("runpod.io", "runpod"),
        ("paperspace", "paperspace"),
        ("digitalocean-paperspace", "paperspace"),
        ("webhook", "webhook"),
        ("aws", None),
        ("", None),
    ],
)
def test_S0_20_cloud_names(name: str, cloud: str | None) -> None:
    assert canonical_cloud(name) == cloud


def test_cloud_suggestions() -> None:
    assert cloud_suggestions("lamda") == ("lambda",)
    assert cloud_suggestions("zzz") == ()
    assert set(ENTRIES) == {"vast", "runpod", "lambda", "paperspace", "vultr", "gcp", "webhook"}


@pytest.mark.parametrize(
    ("cloud", "own", "standard"),
    [
        ("lambda", "us-east-1", "us-east"),
        ("lambda", "us-west-3", "us-west"),
        ("lambda", "us-midwest-1", "us-central"),
        ("lambda", "us-south-2", "us-south"),
        ("lambda", "europe-central-1", "eu-central"),
        ("lambda", "asia-northeast-2", "asia-northeast"),
        ("lambda", "me-west-1", "me-west"),
        ("lambda", "australia-east-1", "australia-east"),
        ("lambda", "moon-base-1", "moon-base-1"),
        ("lambda", "", ""),
        ("paperspace", "East Coast (NY2)", "us-east"),
        ("paperspace", "ams1", "eu-west"),
        ("webhook", "home", "home"),
    ],
)
def test_S1_28_standard_regions(cloud: str, own: str, standard: str) -> None:
    assert standard_region(own, ENTRIES[cloud].regions) == standard


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("us-west", True),
        ("US-West", True),
        ("us-west-1", True),
        ("us-west-2", False),
        ("us", True),
        ("us-east", False),
        ("", False),
    ],
)
def test_S0_36_region_wishes(spec: str, expected: bool) -> None:
    assert region_matches(spec, "us-west", "us-west-1") is expected


def test_a_sold_out_offer_is_in_no_region() -> None:
    assert not region_matches("", "", "")


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("us-wset", "us-west"), ("eu-centrl", "eu-central"), ("assia-east", "asia-east"), ("swedn, se", "sweden, se"),
        ("us-west", ""), ("US-WEST-2", ""), ("us", ""), ("asia-pacific", ""), ("us-tx-3", ""), ("Sweden, SE", ""), ("mars", ""),
    ],
)  # fmt: skip
def test_a_region_that_resembles_one_is_a_slip_of_the_pen(spec: str, near: str) -> None:
    assert "".join(misspelt_region(spec, ["Sweden, SE", "us-tx", ""])[:1]) == near


def test_an_area_is_all_of_its_parts() -> None:
    assert region_matches("us", "us-west", "us-west-1") and region_matches("US", "us-central", "")
    assert not region_matches("us", "australia", "") and not region_matches("eu", "europe", "")
