# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines boot what talos_boot_media wrote, and every way brings them the configuration that was meant."""

from __future__ import annotations

import gzip
import pathlib
import typing as t
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.schematic import canonical_text, schematic_id
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import to_yaml

from sandbox.payload import Refused
from sandbox.talos_boot import OwnMachine
from tests.fixtures.talos_nodes import make

INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"
METAL = to_yaml(build(make(install_disk="/dev/vda", installer_image=INSTALLER)))
MACHINE = OwnMachine()
Call = t.Callable[..., dict[str, t.Any]]


class BootService:
    """What docs/how_to/own_machines.md asks of a service: it knows machines by UUID, or by tickets that are good once."""

    def __init__(self, factory: httpx.Client) -> None:
        self.factory = factory
        self.by_uuid: dict[str, bytes] = {}
        self.tickets: dict[str, bytes] = {}
        self.asked: list[str] = []

    def fetch(self, address: str) -> tuple[int, bytes]:
        self.asked.append(address)
        parts = urlsplit(address)
        if parts.hostname == "factory.test":
            answer = self.factory.get(parts.path)
            return answer.status_code, answer.content
        if parts.path.startswith("/once/"):
            body = self.tickets.pop(parts.path.rpartition("/")[2], None)
        else:
            body = self.by_uuid.get(parse_qs(parts.query).get("uuid", [""])[0])
        return (404, b"") if body is None else (200, body)


@pytest.fixture
def service(factory: httpx.Client) -> BootService:
    return BootService(factory)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_script_for_all_leads_each_machine_to_its_own(
    boot_media: Call, service: BootService, tmp_path: pathlib.Path, pack
) -> None:
    boot_media(forms=["ipxe"], config_url="https://boot.example.com/config?uuid=${uuid}&mac=${mac}")
    script = (tmp_path / "boot" / "talos.ipxe").read_text()
    service.by_uuid[MACHINE.uuid] = pack(METAL.encode())
    intent = MACHINE.boot_from_network(script, service.fetch)
    assert intent is not None and intent.node_name == make().name and intent.installer == INSTALLER
    assert parse_qs(urlsplit(service.asked[-1]).query) == {"uuid": [MACHINE.uuid], "mac": [MACHINE.mac]}
    with pytest.raises(Refused, match="HTTP status 404"):
        OwnMachine(uuid="another").boot_from_network(script, service.fetch)


def test_a_ticket_is_good_once(boot_media: Call, service: BootService, tmp_path: pathlib.Path) -> None:
    boot_media(forms=["ipxe"], nodes=[{"name": "tgp-lab-1", "config_url": "https://boot.example.com/once/Zm9yLW9uZS1tYWNoaW5l"}])
    script = (tmp_path / "boot" / "tgp-lab-1.ipxe").read_text()
    service.tickets["Zm9yLW9uZS1tYWNoaW5l"] = METAL.encode()
    intent = MACHINE.boot_from_network(script, service.fetch)
    assert intent is not None and intent.token == make().bootstrap_token
    with pytest.raises(Refused, match="HTTP status 404"):
        MACHINE.boot_from_network(script, service.fetch)


def test_the_arguments_of_a_schematic_do_the_same_by_themselves(
    boot_media: Call, service: BootService, tmp_path: pathlib.Path
) -> None:
    arguments = boot_media(config_url="https://boot.example.com/config?uuid=${uuid}")["kernel_args"]
    schematic = {"customization": {"extraKernelArgs": arguments}}
    service.factory.post("/schematics", content=canonical_text(schematic)).raise_for_status()
    boot_media(forms=["ipxe"], schematic_id=schematic_id(schematic))
    service.by_uuid[MACHINE.uuid] = METAL.encode()
    script = (tmp_path / "boot" / "talos.ipxe").read_text()
    assert script.startswith("#!ipxe\nchain ") and MACHINE.boot_from_network(script, service.fetch) is not None


def test_without_an_address_it_waits_for_a_push(boot_media: Call, service: BootService, tmp_path: pathlib.Path) -> None:
    boot_media(forms=["ipxe"], consoles=["ttyS0,115200"])
    assert MACHINE.boot_from_network((tmp_path / "boot" / "talos.ipxe").read_text(), service.fetch) is None


def test_volumes_are_found_by_their_label(boot_media: Call, service: BootService, tmp_path: pathlib.Path) -> None:
    cloud = to_yaml(build(make()))
    boot_media(forms=["nocloud"], platform="nocloud", image=True, nodes=[{"name": "a", "config": cloud}])
    lines = boot_media(forms=["metal_iso"], image=True, nodes=[{"name": "b", "config": METAL}])["kernel_args"]
    volumes = tuple((tmp_path / "boot" / name).read_bytes() for name in ("a.cidata.iso", "b.metal-iso.iso"))
    found = OwnMachine(volumes=volumes)
    seeded = found.boot("talos.platform=nocloud", service.fetch)
    assert seeded is not None and (seeded.node_name, seeded.installer) == (make().name, "")
    installed = found.boot(" ".join(["talos.platform=metal", *lines]), service.fetch)
    assert installed is not None and installed.installer == INSTALLER
    with pytest.raises(Refused, match="no volume metal-iso"):
        MACHINE.boot(" ".join(["talos.platform=metal", *lines]), service.fetch)
    assert service.asked == []
