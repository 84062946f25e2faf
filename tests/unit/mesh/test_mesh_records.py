# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a key is called in the tailnet, and how records are read."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.base import description_of
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.tailscale import client, policy
from hypothesis import given
from hypothesis import strategies as st

from sandbox import tailnet_policy

LONG = "tgp-a1b2c3d4-" + "a" * 40


@pytest.mark.parametrize(
    ("node", "description"),
    [
        ("tgp-a1b2c3d4-training-0k3zq", "tgp tgp-a1b2c3d4-training-0k3zq"),
        ("tgp-a1b2c3d4-" + "p" * 27 + "-0k3zq", "tgp tgp-a1b2c3d4-" + "p" * 27 + "-0k3zq"),  # exactly 50
        ("homelab", "tgp homelab"),
    ],
)
def test_short_names_stay_as_they_are(node: str, description: str) -> None:
    assert description_of(node) == description and len(description) <= 50


def test_L1_longest_name_keeps_cluster_and_random_end() -> None:
    node = f"{LONG}-0k3zq"
    assert len(node) == 59
    text = description_of(node)
    assert len(text) <= 50 and text.startswith("tgp tgp-a1b2c3d4-aaa") and text.endswith("-0k3zq")


def test_names_that_differ_only_in_the_cut_part_differ() -> None:
    pool = "p" * 38
    assert description_of(f"tgp-a1b2c3d4-{pool}xy-0k3zq") != description_of(f"tgp-a1b2c3d4-{pool}xz-0k3zq")
    assert description_of("node.a") != description_of("node-a") != description_of("node_a")


@given(st.text(min_size=1, max_size=300))
def test_description_is_always_acceptable(node: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9 -]{1,50}", description_of(node))


@given(st.lists(st.from_regex(r"tgp-[0-9a-f]{8}-[a-z0-9]{1,40}-[0-9a-z]{5}", fullmatch=True), min_size=2, max_size=20, unique=True))
def test_descriptions_are_unique(names: list[str]) -> None:
    assert len({description_of(name) for name in names}) == len(names)


# ---- policies


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2,], /* x */ "b": {},}',
        '{ // "a": 1,\n "b": "http://x/*y*/", "c": "a\\"//b", }',
        '["a,]", "b,}",\n  // last\n]',
        "[1,/* , */]",
        '{"a": "\\\\"}',
        "// only\n{} // after",
        "[]",
        '{"a": "x" , \n\t}',
    ],
)
def test_two_readers_of_policies_agree(text: str) -> None:
    assert policy.loads(text) == tailnet_policy.parse(text)


@pytest.mark.parametrize("text", ["", "{", '{"a": "x', "/* no end", '{"a" 1}', "<html>"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        policy.loads(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_every_json_is_hujson(value: t.Any, indent: t.Any) -> None:
    import json

    text = json.dumps(value, indent=indent)
    assert policy.loads(text) == value
    assert policy.loads(f"/* a */ {text} // b") == value


# ---- devices

API = Api("tailscale", "http://tailnet.test")
SEEN = {"lastSeen": "2026-11-20T10:00:00Z"}
JOINED = {"nodeId": "n1", "hostname": "h", "addresses": ["100.64.0.1"], "created": "2026-11-20T09:00:00Z"}


@pytest.mark.parametrize(
    ("item", "online"),
    [
        ({**JOINED, "connectedToControl": True}, True),
        ({**JOINED, "connectedToControl": False, **SEEN}, False),
        ({**JOINED, "connectedToControl": True, **SEEN}, True),
        (JOINED, True),  # headscale has no such field: lastSeen is left out while connected
        ({**JOINED, **SEEN}, False),
        ({"nodeId": "n1", "hostname": "h"}, False),  # never connected
        ({**JOINED, "addresses": []}, False),
        ({**JOINED, "created": ""}, False),
        ({"id": "1", "hostname": "h", "isExternal": True, "created": ""}, None),
    ],
)
def test_online(item: dict[str, t.Any], online: bool | None) -> None:
    assert client.device(API, item, "GET").online is online


def test_missing_fields_are_tolerated_and_the_zero_time_is_none() -> None:
    device = client.device(API, {"id": "7", "hostname": "h", "expires": "0001-01-01T00:00:00Z", "tags": None}, "GET")
    assert (device.id, device.tags, device.expires, device.key_expiry_disabled, device.authorized) == ("7", (), None, None, True)


def test_problems_are_named() -> None:
    item = {**JOINED, "tailnetLockError": "not signed", "authorized": False, "multipleConnections": True}
    problem = client.device(API, item, "GET").problem
    assert all(word in problem for word in ("not signed", "approval", "copied"))


def test_revoked_key_is_invalid_whatever_it_says() -> None:
    assert client.read_key({"id": "k1", "revoked": "2026-11-20T10:00:00Z", "invalid": False}).invalid is True
    assert client.read_key({"id": "k1"}).invalid is None
