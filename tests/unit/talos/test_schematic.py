# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Schematic ids: vectors of the real factory, and the emulator."""

from __future__ import annotations

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.factory import computed
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.nvidia import ordered_schematic
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.schematic import gpu_schematic, schematic_id

from sandbox import image_files
from sandbox.image_factory import app
from sandbox.world import World

NVIDIA = ["siderolabs/tailscale", "siderolabs/nvidia-open-gpu-kernel-modules-{}", "siderolabs/nvidia-container-toolkit-{}"]
VECTORS = {
    "empty": ({}, "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
    "kernel arguments": (
        {"customization": {"extraKernelArgs": ["noapic", "nolapic"]}},
        "9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c",
    ),
    "lts": (
        gpu_schematic(name.format("lts") for name in NVIDIA),
        "e895d48d74723ede2d8e517c82bdae2d5f454c8af01dbf4311030997d073987a",
    ),
    "production": (
        gpu_schematic(name.format("production") for name in NVIDIA),
        "ac674a9bdc851c27611448f940f5b0b948922d53081cf39ac1eb8a8b04e4347d",
    ),
    "overlay": (
        {"overlay": {"name": "rpi_generic", "image": "siderolabs/sbc-raspberrypi"}},
        "ee21ef4a5ef808a9b7484cc0dda0f25075021691c8c09a276591eedb638ea1f9",
    ),
    "meta": (
        {"customization": {"meta": [{"key": 10, "value": "foo"}]}},
        "d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f",
    ),
}


@pytest.fixture(name="factory")
def _factory():
    with httpx.Client(transport=httpx.WSGITransport(app=app(World())), base_url="http://factory") as client:
        yield client


@pytest.mark.parametrize("name", VECTORS)
def test_ids_are_those_of_the_real_factory(name, factory):
    body, wanted = VECTORS[name]
    assert schematic_id(body) == wanted
    answer = factory.post("/schematics", json=body)
    assert (answer.status_code, answer.json()["id"]) == (201, wanted)
    assert factory.get(f"/schematics/{wanted}").text == answer.json()["schematic"]


@pytest.mark.parametrize("name", ["vultr-amd64.raw", "gcp-amd64.raw.tar.gz"])
def test_a_disk_image_lies_in_a_store_that_gives_parts(name, factory):
    schematic = VECTORS["empty"][1]
    address = f"/image/{schematic}/v1.13.9/{name}"
    led = factory.get(address)
    assert (led.status_code, factory.head(address).status_code) == (302, 302)
    assert factory.head(led.headers["location"]).status_code == 403, "it is signed for GET"
    part = factory.get(led.headers["location"], headers={"Range": "bytes=10-19"})
    whole = factory.get(led.headers["location"]).content
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, whole[10:20], f"bytes 10-19/{len(whole)}")
    assert image_files.read(whole) == (schematic, "v1.13.9", name) and image_files.read(whole[:-1]) is None
    assert factory.head(address.replace("v1.13.9", "v1.13.99")).status_code == 404
    assert factory.head(address.replace(schematic, "ab" * 32)).status_code == 404
    assert factory.head(address.replace(name, "metal-amd64.raw.zst")).status_code == 503


@pytest.mark.parametrize("value", ["true", "a: b", "1.5", "", "x #y", "two\nlines", "---x=y", "ends=:"])
def test_a_string_with_uncertain_quoting_gets_no_id(value):
    with pytest.raises(InvalidInput, match="quoting"):
        schematic_id({"customization": {"extraKernelArgs": [value]}})


def test_unknown_fields_are_refused(factory):
    with pytest.raises(InvalidInput, match=r"customization\.extensions"):
        schematic_id({"customization": {"extensions": ["a"]}})
    assert factory.post("/schematics", json={"customisation": {}}).status_code == 400


def test_versions_and_extensions(factory):
    assert "v1.13.9" in factory.get("/versions").json()
    names = [entry["name"] for entry in factory.get("/version/v1.13.9/extensions/official").json()]
    assert "siderolabs/tailscale" in names and "siderolabs/nvidia-open-gpu-kernel-modules-lts" in names
    assert factory.get("/version/v9.9.9/extensions/official").status_code == 404
    assert factory.get("/version/nonsense/extensions/official").status_code == 500
    assert factory.get(f"/schematics/{'0' * 64}").status_code == 404


def test_the_schematic_of_a_class_is_known_by_reference_and_by_content():
    content, other = gpu_schematic(["siderolabs/tailscale"]), "0" * 64
    number = schematic_id(content)
    assert number and len(number) == 64
    image = f"factory.talos.dev/metal-installer/{number}:v1.13.9"
    for schematic, reference, found in (
        (content, "", number),
        (content, image, number),
        (None, image, number),
        (None, f"registry.example/{other}@sha256:{other}", other),
        (None, "ghcr.io/siderolabs/installer:v1.13.9", ""),
        (None, "", ""),
        (content, image.replace(number, other), ""),  # two images: refused before renting, so no evidence afterwards
    ):
        assert ordered_schematic(schematic, reference, "1.13.9") == found, (schematic, reference)


@pytest.mark.parametrize("names", [("opt2", "opt10"), ("conf_a", "confB"), ("opt1", "opt01")])
def test_the_order_of_options_with_digits_or_signs_is_the_factorys_to_tell(names):
    overlay = {"image": "siderolabs/sbc-raspberrypi", "name": "rpi_generic", "options": dict.fromkeys(names, True)}
    assert computed({"overlay": overlay}) is None
    assert computed({"overlay": {**overlay, "options": {names[0]: True}}}) is not None
    assert computed({"overlay": {**overlay, "options": {"zone": True, "Area": True}}}) is not None
