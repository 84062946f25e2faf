# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What own machines boot from: scripts, seeds, volumes and references; nothing secret in a result or where others can read it."""

from __future__ import annotations

import io
import json
import pathlib
import shutil
import stat
import subprocess
import typing as t

import httpx
import pycdlib
import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.lanes.talos_ipxe import own_script
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.documents import to_yaml
from ansible_collections.tgp.gpu.plugins.module_utils.talos.schematic import canonical, schematic_id
from ansible_collections.tgp.gpu.plugins.module_utils.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import talos_boot_media

from sandbox import image_factory
from sandbox.clock import SimClock
from sandbox.world import World
from tests.fixtures.talos_nodes import BUNDLE, NODE_KEY, NODE_TOKEN, make

SCHEMATIC = {"customization": {"extraKernelArgs": ["net.ifnames=0"]}}
ID = schematic_id(SCHEMATIC)
INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"
CLOUD = to_yaml(build(make()))
METAL = to_yaml(build(make(install_disk="/dev/vda", installer_image=INSTALLER)))
SECRETS = (NODE_KEY, NODE_TOKEN, BUNDLE["trustdinfo"]["token"], BUNDLE["cluster"]["secret"])
URL = "https://boot.example.com/config?uuid=${uuid}&mac=${mac}"
TICKET = "https://boot.example.com/once/Zm9yLW9uZS1tYWNoaW5l"


@pytest.fixture(scope="module")
def factory() -> t.Any:
    app = image_factory.app(World(SimClock(speed=2000.0)))
    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="https://factory.test") as client:
        client.post("/schematics", content=canonical(SCHEMATIC)).raise_for_status()
    return app


@pytest.fixture
def call(factory: t.Any, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    def called(*, check: bool = False, diff: bool = False, warnings: list[str] | None = None, **params: t.Any) -> dict[str, t.Any]:
        spec = {key: value for key, value in talos_boot_media.SPEC.items() if key != "supports_check_mode"}
        given = {"schematic_id": ID, "dest": str(tmp_path / "boot"), "image_factory_url": "https://factory.test", **params}
        read = ArgumentSpecValidator(**spec).validate(given)
        assert not read.error_messages, read.error_messages
        task = Task(
            params=read.validated_parameters,
            check_mode=check,
            diff_mode=diff,
            warn=(warnings if warnings is not None else []).append,
            transport=lambda _url: httpx.WSGITransport(app=factory),
        )
        result = execute(talos_boot_media.SPEC, talos_boot_media.run, task)
        assert not any(secret in json.dumps(result) for secret in (*SECRETS, TICKET))
        return result

    return called


def files(folder: pathlib.Path) -> dict[str, str]:
    found = {path: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} <= {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()} <= {0o700}
    return {path.relative_to(folder).as_posix(): text for path, text in found.items()}


# ---- network boot


def test_a_script_has_the_arguments_of_the_image_and_ours(call, tmp_path: pathlib.Path) -> None:
    result = call(forms=["ipxe"], config_url=URL, consoles=["tty0", "ttyS0,115200"], kernel_args=["talos.halt_if_installed=1"])
    script = files(tmp_path / "boot")["talos.ipxe"]
    kernel = next(line for line in script.splitlines() if line.startswith("kernel "))
    assert kernel.startswith(f"kernel https://factory.test/image/{ID}/v1.13.9/kernel-amd64 talos.platform=metal console=tty0 ")
    assert kernel.endswith(f" net.ifnames=0 talos.config={URL} console=ttyS0,115200 talos.halt_if_installed=1")
    assert kernel.count("console=tty0") == 1 and script.startswith("#!ipxe\n") and script.rstrip().endswith("boot")
    assert result["kernel_args"] == [f"talos.config={URL}", "console=tty0", "console=ttyS0,115200", "talos.halt_if_installed=1"]
    assert result["images"]["installer"] == f"factory.test/metal-installer/{ID}:v1.13.9"


def test_without_arguments_the_script_is_the_factorys_own(call, tmp_path: pathlib.Path) -> None:
    call(forms=["ipxe"], secureboot=True, arch="arm64")
    chain = f"chain --replace --autofree https://factory.test/pxe/{ID}/v1.13.9/metal-arm64-secureboot"
    assert files(tmp_path / "boot")["talos.ipxe"] == f"#!ipxe\n{chain}\n"


def test_a_machine_may_have_an_address_of_its_own_and_nobody_sees_it(call, tmp_path: pathlib.Path) -> None:
    result = call(forms=["ipxe"], nodes=[{"name": "tgp-lab-1", "config_url": TICKET}], diff=True)
    found = files(tmp_path / "boot")
    assert list(found) == ["tgp-lab-1.ipxe"] and f" talos.config={TICKET}\n" in found["tgp-lab-1.ipxe"]
    assert result["diff"][0]["after"].startswith("a secret of ") and result["kernel_args"] == []


def test_secure_boot_takes_no_arguments(call, tmp_path: pathlib.Path) -> None:
    result = call(forms=["ipxe"], secureboot=True, config_url=URL)
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
def test_no_lasting_secret_and_nothing_unreadable_in_an_address(call, tmp_path: pathlib.Path, url: str, said: str) -> None:
    result = call(forms=["ipxe"], config_url=url)
    assert said in result["msg"] and not (tmp_path / "boot").exists()


def test_the_code_of_a_machine_is_for_images(call) -> None:
    url = "https://boot.example.com/?code=${code}"
    assert call(config_url=url)["kernel_args"] == [f"talos.config={url}"]


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
def test_no_secret_and_no_contradiction_in_an_argument(call, argument: str, said: str) -> None:
    assert said in call(forms=["ipxe"], kernel_args=[argument])["msg"]


def test_plain_http_is_warned_of(call) -> None:
    warnings: list[str] = []
    call(forms=["ipxe"], config_url="http://10.0.0.1/config?uuid=${uuid}", warnings=warnings)
    assert warnings == [
        "The configuration, and with it the cluster's secrets, crosses the network unprotected: http://10.0.0.1/config."
    ]


# ---- seeds


NETWORK = {"version": 2, "ethernets": {"eth0": {"addresses": ["10.20.0.11/24"], "gateway4": "10.20.0.1"}}}


def nocloud(call, **more: t.Any) -> dict[str, t.Any]:
    node = {"name": "tgp-lab-1", "config": CLOUD, "network_config": NETWORK, **more.pop("node", {})}
    return call(forms=["nocloud"], platform="nocloud", nodes=[node], **more)


def test_a_seed_is_three_files_and_a_command(call, tmp_path: pathlib.Path) -> None:
    result = nocloud(call, diff=True)
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
def test_a_volume_carries_the_label_and_the_files(call, tmp_path: pathlib.Path, form: str) -> None:
    platform, label = ("nocloud", "cidata") if form == "nocloud" else ("metal", "metal-iso")
    nodes = [{"name": "tgp-lab-1", "config": CLOUD if form == "nocloud" else METAL}]
    result = call(forms=[form], platform=platform, image=True, nodes=nodes)
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
def test_what_is_there_already_is_left_alone(call, tmp_path: pathlib.Path, image: bool) -> None:
    assert nocloud(call, image=image, check=True)["changed"] and not (tmp_path / "boot").exists()
    assert nocloud(call, image=image)["changed"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "boot").rglob("*")}
    again = nocloud(call, image=image, diff=True)
    assert (again["changed"], again["diff"]) == (False, [])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "boot").rglob("*")} == before
    assert nocloud(call, image=image, node={"network_config": None})["changed"]
    assert "network-config" not in "".join(files(tmp_path / "boot"))


def test_a_file_that_others_may_read_is_made_private(call, tmp_path: pathlib.Path) -> None:
    nocloud(call)
    (tmp_path / "boot" / "tgp-lab-1" / "nocloud" / "user-data").chmod(0o644)
    assert nocloud(call)["changed"] and files(tmp_path / "boot")
    assert not nocloud(call)["changed"]


@pytest.mark.parametrize("first", ["#cloud-config", "#include", "#!/bin/sh"])
def test_a_first_line_that_talos_takes_for_something_else_is_refused(call, first: str) -> None:
    assert "Talos would take it for something else" in nocloud(call, node={"config": f"{first}\n{CLOUD}"})["msg"]


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
def test_what_does_not_fit_is_refused_before_anything_is_written(call, tmp_path: pathlib.Path, given: dict, said: str) -> None:
    result = call(**given)
    assert result["failed"] and said in result["msg"] and not (tmp_path / "boot").exists()


def test_a_network_without_a_version_is_refused(call) -> None:
    assert "needs a version, 1 or 2" in nocloud(call, node={"network_config": {"ethernets": {}}})["msg"]
