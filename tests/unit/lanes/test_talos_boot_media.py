# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What own machines boot from: scripts, seeds, volumes and references; nothing secret in a result or where others can read it."""

from __future__ import annotations

import io
import pathlib
import shutil
import stat
import subprocess
import typing as t

import pycdlib
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.talos.boot_media import own_script
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import to_yaml

from tests.fixtures.talos_nodes import make

INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"
CLOUD = to_yaml(build(make()))
METAL = to_yaml(build(make(install_disk="/dev/vda", installer_image=INSTALLER)))
URL = "https://boot.example.com/config?uuid=${uuid}&mac=${mac}"
TICKET = "https://boot.example.com/once/Zm9yLW9uZS1tYWNoaW5l"


def files(folder: pathlib.Path) -> dict[str, str]:
    found = {path: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} <= {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()} <= {0o700}
    return {path.relative_to(folder).as_posix(): text for path, text in found.items()}


# ---- network boot


def test_a_script_has_the_arguments_of_the_image_and_ours(boot_media, schematic: str, tmp_path: pathlib.Path) -> None:
    result = boot_media(
        forms=["ipxe"], config_url=URL, consoles=["tty0", "ttyS0,115200"], kernel_args=["talos.halt_if_installed=1"]
    )
    script = files(tmp_path / "boot")["talos.ipxe"]
    kernel = next(line for line in script.splitlines() if line.startswith("kernel "))
    assert kernel.startswith(
        f"kernel https://factory.test/image/{schematic}/v1.13.9/kernel-amd64 talos.platform=metal console=tty0 "
    )
    assert kernel.endswith(f" net.ifnames=0 talos.config={URL} console=ttyS0,115200 talos.halt_if_installed=1")
    assert kernel.count("console=tty0") == 1 and script.startswith("#!ipxe\n") and script.rstrip().endswith("boot")
    assert result["kernel_args"] == [f"talos.config={URL}", "console=tty0", "console=ttyS0,115200", "talos.halt_if_installed=1"]
    assert result["images"]["installer"] == f"factory.test/metal-installer/{schematic}:v1.13.9"


def test_without_arguments_the_script_is_the_factorys_own(boot_media, schematic: str, tmp_path: pathlib.Path) -> None:
    boot_media(forms=["ipxe"], secureboot=True, arch="arm64")
    chain = f"chain --replace --autofree https://factory.test/pxe/{schematic}/v1.13.9/metal-arm64-secureboot"
    assert files(tmp_path / "boot")["talos.ipxe"] == f"#!ipxe\n{chain}\n"


def test_a_machine_may_have_an_address_of_its_own_and_nobody_sees_it(boot_media, tmp_path: pathlib.Path) -> None:
    result = boot_media(forms=["ipxe"], nodes=[{"name": "tgp-lab-1", "config_url": TICKET}], diff=True)
    found = files(tmp_path / "boot")
    assert list(found) == ["tgp-lab-1.ipxe"] and f" talos.config={TICKET}\n" in found["tgp-lab-1.ipxe"]
    assert result["diff"][0]["after"].startswith("a secret of ") and result["kernel_args"] == []


def test_secure_boot_takes_no_arguments(boot_media, tmp_path: pathlib.Path) -> None:
    result = boot_media(forms=["ipxe"], secureboot=True, config_url=URL)
    assert "part of the signed image" in result["msg"] and not (tmp_path / "boot").exists()


def test_an_image_that_has_an_address_already_takes_no_second_one() -> None:
    published = "#!ipxe\nkernel http://f/kernel talos.platform=metal talos.config=http://a/\nboot\n"
    with pytest.raises(Exception, match="has a talos.config argument of its own"):
        own_script(published, ["talos.config=https://b/"])
    with pytest.raises(Exception, match="would have 2[0-9]{3} bytes, and the kernel reads 2048"):
        own_script(published, [f"a={'x' * 2100}"])
    with pytest.raises(Exception, match="has no command line that could be added to"):
        own_script("#!ipxe\nkernel http://f/metal-amd64.uki.efi\nboot\n", ["a=b"])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://me:hunter22@boot.example.com/", "user or password"),
        ("https://boot.example.com/?token=0123456789", "its query carries 'token'"),
        ("https://boot.example.com/?id=a&X-Amz-Signature=0123456789", "its query carries 'X-Amz-Signature'"),
        ("https://boot.example.com/?id=abcdef.0123456789abcdef", "of the form of a key or token"),
        ("https://boot.example.com/${uuid}", "outside the query"),
        ("https://boot.example.com/?id=${disk}", "does not know the variable ${disk}"),
        ("https://boot.example.com/?code=${code}", "iPXE fills variables in before Talos can"),
        ("ftp://boot.example.com/", "must be an http or https address"),
        ("https://boot.example.com/a b", "a blank"),
    ],
)
def test_no_lasting_secret_and_nothing_unreadable_in_an_address(boot_media, tmp_path: pathlib.Path, url: str, said: str) -> None:
    result = boot_media(forms=["ipxe"], config_url=url)
    assert said in result["msg"] and not (tmp_path / "boot").exists()


def test_the_code_of_a_machine_is_for_images(boot_media) -> None:
    url = "https://boot.example.com/?code=${code}"
    assert boot_media(config_url=url)["kernel_args"] == [f"talos.config={url}"]


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("talos.config=https://x/", "is made of config_url"),
        ("talos.platform=aws", "part of the image"),
        ("talos.config.inline=KLUv", "carries a configuration"),
        ("talos.config.oauth.client_secret=0123456789abcdef", "looks like a secret"),
        ("a b", "has a blank"),
        ("", "is empty"),
    ],
)
def test_no_secret_and_no_contradiction_in_an_argument(boot_media, argument: str, said: str) -> None:
    assert said in boot_media(forms=["ipxe"], kernel_args=[argument])["msg"]


def test_plain_http_is_warned_of(boot_media) -> None:
    warnings: list[str] = []
    boot_media(forms=["ipxe"], config_url="http://10.0.0.1/config?uuid=${uuid}", warnings=warnings)
    assert warnings == [
        "The configuration, and with it the cluster's secrets, crosses the network unprotected: http://10.0.0.1/config."
    ]


# ---- seeds


NETWORK = {"version": 2, "ethernets": {"eth0": {"addresses": ["10.20.0.11/24"], "gateway4": "10.20.0.1"}}}


def nocloud(boot_media, **more: t.Any) -> dict[str, t.Any]:
    node = {"name": "tgp-lab-1", "config": CLOUD, "network_config": NETWORK, **more.pop("node", {})}
    return boot_media(forms=["nocloud"], platform="nocloud", nodes=[node], **more)


def test_a_seed_is_three_files_and_a_command(boot_media, tmp_path: pathlib.Path) -> None:
    result = nocloud(boot_media, diff=True)
    found = files(tmp_path / "boot")
    assert found["tgp-lab-1/nocloud/user-data"] == CLOUD
    assert yaml.safe_load(found["tgp-lab-1/nocloud/meta-data"])["instance-id"] == "tgp-lab-1"
    assert yaml.safe_load(found["tgp-lab-1/nocloud/network-config"]) == NETWORK
    assert len(found) == 3 and all(one["after"].startswith("a secret") for one in result["diff"])
    folder = tmp_path / "boot" / "tgp-lab-1" / "nocloud"
    assert result["commands"] == [
        f"(umask 077 && cd {folder} && xorriso -as genisoimage -quiet -output {tmp_path}/boot/tgp-lab-1.cidata.iso -volid cidata "
        "-joliet -rock user-data meta-data network-config)"
    ]
    if shutil.which("xorriso"):
        subprocess.run(["bash", "-c", result["commands"][0]], check=True, capture_output=True)
        assert content(tmp_path / "boot" / "tgp-lab-1.cidata.iso")["user-data"] == CLOUD


def content(path: pathlib.Path) -> dict[str, str]:
    volume = pycdlib.PyCdlib()
    volume.open(str(path))
    found = {}
    for entry in volume.list_children(joliet_path="/"):
        if entry.is_file():
            name = entry.file_identifier().decode("utf-16_be")
            data = io.BytesIO()
            volume.get_file_from_iso_fp(data, joliet_path=f"/{name}")
            found[name] = data.getvalue().decode()
    volume.close()
    return found


@pytest.mark.parametrize("form", ["nocloud", "metal_iso"])
def test_a_volume_carries_the_label_and_the_files(boot_media, tmp_path: pathlib.Path, form: str) -> None:
    platform, label = ("nocloud", "cidata") if form == "nocloud" else ("metal", "metal-iso")
    nodes = [{"name": "tgp-lab-1", "config": CLOUD if form == "nocloud" else METAL}]
    result = boot_media(forms=[form], platform=platform, image=True, nodes=nodes)
    path = tmp_path / "boot" / f"tgp-lab-1.{label}.iso"
    assert result["commands"] == [] and [one["path"] for one in result["files"]] == [str(path)]
    name = "user-data" if form == "nocloud" else "config.yaml"
    assert sorted(content(path)) == (["meta-data", name] if form == "nocloud" else [name])
    assert content(path)[name] == nodes[0]["config"]
    assert result["kernel_args"] == ([] if form == "nocloud" else ["talos.config=metal-iso"])
    if shutil.which("blkid"):
        told = subprocess.run(["blkid", "-p", "-o", "export", path], capture_output=True, text=True, check=True).stdout
        assert f"LABEL={label}\n" in told and "TYPE=iso9660\n" in told


@pytest.mark.parametrize("image", [False, True])
def test_what_is_there_already_is_left_alone(boot_media, tmp_path: pathlib.Path, image: bool) -> None:
    assert nocloud(boot_media, image=image, check=True)["changed"] and not (tmp_path / "boot").exists()
    assert nocloud(boot_media, image=image)["changed"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "boot").rglob("*")}
    again = nocloud(boot_media, image=image, diff=True)
    assert (again["changed"], again["diff"]) == (False, [])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "boot").rglob("*")} == before
    assert nocloud(boot_media, image=image, node={"network_config": None})["changed"]
    assert "network-config" not in "".join(files(tmp_path / "boot"))


def test_a_file_that_others_may_read_is_made_private(boot_media, tmp_path: pathlib.Path) -> None:
    nocloud(boot_media)
    (tmp_path / "boot" / "tgp-lab-1" / "nocloud" / "user-data").chmod(0o644)
    assert nocloud(boot_media)["changed"] and files(tmp_path / "boot")
    assert not nocloud(boot_media)["changed"]


@pytest.mark.parametrize("first", ["#cloud-config", "#include", "#!/bin/sh"])
def test_a_first_line_that_talos_takes_for_something_else_is_refused(boot_media, first: str) -> None:
    assert "Talos would take it for something else" in nocloud(boot_media, node={"config": f"{first}\n{CLOUD}"})["msg"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schematic_id": "abc"}, "64 hex digits"),
        ({"talos_version": "1.9.5"}, "1.10 or newer"),
        ({"talos_version": "latest"}, "a release like 1.13.9"),
        ({"forms": ["ipxe"], "dest": None}, "dest is missing"),
        ({"forms": ["nocloud"]}, "Form nocloud is for platform nocloud"),
        ({"forms": ["metal_iso"]}, "nodes lists none"),
        ({"platform": "nocloud", "config_url": URL}, "read on platform metal only"),
        ({"forms": ["metal_iso"], "config_url": URL, "nodes": [{"name": "a", "config": METAL}]}, "exclude each other"),
        ({"forms": ["metal_iso"], "nodes": [{"name": "a", "config": CLOUD}]}, "machine.install.disk is missing"),
        ({"forms": ["metal_iso"], "nodes": [{"name": "a"}]}, "give config or config_file"),
        ({"forms": ["metal_iso"], "nodes": [{"name": "../a", "config": METAL}]}, "cannot be used as a name"),
        ({"forms": ["metal_iso"], "nodes": [{"name": "a", "config": METAL}] * 2}, "listed twice"),
        ({"forms": ["ipxe"], "nodes": [{"name": "a", "config": METAL}]}, "carries no configuration"),
        ({"forms": ["ipxe"], "nodes": [{"name": "a", "network_config": NETWORK}]}, "needs form nocloud"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    boot_media, tmp_path: pathlib.Path, given: dict, said: str
) -> None:
    result = boot_media(**given)
    assert result["failed"] and said in result["msg"] and not (tmp_path / "boot").exists()


def test_a_network_without_a_version_is_refused(boot_media) -> None:
    assert "needs a version, 1 or 2" in nocloud(boot_media, node={"network_config": {"ethernets": {}}})["msg"]
