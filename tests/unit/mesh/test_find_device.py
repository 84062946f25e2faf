# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding a node's device among all devices (L-1: names are never reused, the mesh may add "-1")."""

from __future__ import annotations

import dataclasses
import types
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.mesh import device_batch
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.base import find_device, is_suffixed
from ansible_collections.tgp.gpu.plugins.module_utils.model import Device

MADE = datetime(2026, 11, 20, 10, 0, tzinfo=timezone.utc)  # when the key was made
NAME = "tgp-a1b2c3d4-training-0k3zq"
NODE = Device(
    id="n1",
    hostname=NAME,
    name=f"{NAME}.tail.ts.net",
    addresses=("100.64.0.1",),
    tags=("tag:gpu", "tag:k8s"),
    online=True,
    created=MADE + timedelta(seconds=90),
    ephemeral=True,
)


def at(seconds: float, **changes: object) -> Device:
    """NODE, created that long after the key."""
    return dataclasses.replace(NODE, created=MADE + timedelta(seconds=seconds), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("devices", "found", "stale"),
    [
        pytest.param([], None, [], id="nobody there"),
        pytest.param([NODE], "n1", [], id="the plain case"),
        pytest.param([at(90, hostname="tgp-a1b2c3d4-training-9zz01")], None, [], id="another machine"),
        pytest.param([at(90, name=f"{NAME}-1.tail.ts.net")], "n1", [], id="the mesh gave it -1"),
        pytest.param([at(90, hostname=f"{NAME}-1", name=f"{NAME}.tail.ts.net")], None, [], id="found by hostname, never by name"),
        pytest.param([at(90, hostname=NAME.upper())], "n1", [], id="case does not matter"),
        pytest.param([at(90, tags=("tag:gpu",))], None, [], id="a tag is missing"),
        pytest.param([at(90, tags=())], None, [], id="somebody's own laptop"),
        pytest.param([at(90, external=True)], None, [], id="shared in from elsewhere"),
        pytest.param([at(90, ephemeral=False)], None, [], id="not ephemeral"),
        pytest.param([at(90, ephemeral=None)], "n1", [], id="ephemeral or not is unknown"),
        pytest.param([at(-120)], "n1", [], id="120 s of clock difference are allowed"),
        pytest.param([at(-121)], None, ["n1"], id="121 s are an earlier machine"),
        pytest.param([dataclasses.replace(NODE, created=None)], None, ["n1"], id="no creation time proves nothing"),
        pytest.param([at(-9999, id="old", online=False), NODE], "n1", ["old"], id="an older entry is stale"),
        pytest.param([at(10, id="a"), at(20, id="b"), at(15, id="c")], "b", ["a", "c"], id="of several the newest"),
        pytest.param([at(10, id="a"), at(20, id="b", online=False)], "a", ["b"], id="connected beats newer"),
        pytest.param([at(10, id="a", online=None), at(20, id="b", online=False)], "b", ["a"], id="unknown is not connected"),
        pytest.param([at(10, online=False)], "n1", [], id="it may be offline"),
    ],
)
def test_finder(devices: list[Device], found: str | None, stale: list[str]) -> None:
    result = find_device(devices, hostname=NAME, tags=["tag:gpu", "tag:k8s"], created_after=MADE, ephemeral=True)
    assert (result.device.id if result.device else None) == found
    assert sorted(device.id for device in result.stale) == stale


def test_without_a_key_time_any_age_will_do() -> None:
    assert find_device([at(-9999)], hostname=NAME, tags=[], created_after=None).device is not None


@pytest.mark.parametrize(
    ("hostname", "name", "suffixed"),
    [
        ("host", "host.tail.ts.net", False),
        ("host", "host-1.tail.ts.net", True),
        ("host", "host-12", True),
        ("host", "host", False),
        ("host", "host-x.tail.ts.net", False),
        ("Host", "host-1.tail.ts.net", True),
        ("host-1", "host-1.tail.ts.net", False),
        ("a.b", "axb-1", False),
        ("host", "", False),
    ],
)
def test_suffix(hostname: str, name: str, suffixed: bool) -> None:
    assert is_suffixed(Device(id="n", hostname=hostname, name=name)) is suffixed


def test_a_device_that_is_shared_in_is_removed_by_its_id_alone() -> None:
    """It belongs to another tailnet, whatever its hostname and tags are."""
    ended: list[str] = []
    shared = dataclasses.replace(NODE, id="shared", external=True)
    mesh = types.SimpleNamespace(devices=lambda: [NODE, shared], delete_device=lambda device_id: ended.append(device_id) or True)
    for ids, goes in (([], ["n1"]), (["shared"], ["n1", "shared"])):
        ended.clear()
        assert device_batch.remove(mesh, [NAME], ids, ["tag:gpu"], dry=False).changed  # type: ignore[arg-type]
        assert sorted(ended) == goes
