# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Meshes: Tailscale's API v2, which headscale from 0.30 on serves too, and headscale's own API v1 (0.28, 0.29). Paths are below the API's
root."""

from __future__ import annotations

import re

from .fact import WHEN, Basis, Fact, FactOutcome, Group, Question, Replies, Table, Verdict, not_seen, values, verdict

_SPEC = "Tailscale's OpenAPI description of July 2026 and its official Go client 2.9.0"
_HEADSCALE = "the source of headscale, July 2026, and a server that was run"
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}|[0-9a-f:]+")
_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]*")
_MOMENT = re.compile(rf"({WHEN.pattern})?")
_NO_DEVICE = "nNoSuchDeviceCNTRL"

# ---- API v2

_V2 = (
    Question("devices", "GET", "/tailnet/-/devices", {"fields": "default"}),
    Question("keys", "GET", "/tailnet/-/keys", {"all": "true"}),
    Question("unknown_device", "GET", f"/device/{_NO_DEVICE}", {"fields": "default"}),
    Question("unknown_key", "GET", "/tailnet/-/keys/kNoSuchKeyCNTRL"),
    Question("bad_token", "GET", "/tailnet/-/devices", {"fields": "default"}, credential=False),
)
_lists = Group("tailscale", _SPEC, consequence="Devices or keys are not found: nodes wait in vain, and orphans are not removed.")
_device = Group(
    "tailscale", _SPEC, consequence="A node is not recognised, or is taken for connected when it is not.", may_be_empty=True
)
_key = Group("tailscale", _SPEC, consequence="A key whose machine never came is not found and not revoked.", may_be_empty=True)
_errors = Group(
    "tailscale",
    _SPEC,
    Basis.RECORDED,
    "The refusal is taken for something else: a device that is gone for an outage, or the reverse.",
)


def _none(replies: Replies, name: str) -> Verdict:
    empty = values(replies[name].json, name) == [[]]
    return Verdict(FactOutcome.NOT_CHECKED, "the account has none") if empty else not_seen("it is not a list of objects")


def _whole(replies: Replies) -> Verdict:
    """Keys come whole, or as ids alone; the client reads both."""
    keys = [one for one in values(replies["keys"].json, "keys.*") if isinstance(one, dict)]
    if not keys:
        return _none(replies, "keys")
    full, short = sum("created" in one for one in keys), sum(set(one) == {"id"} for one in keys)
    return verdict(full == len(keys) or short == len(keys), f"{full} whole and {short} as ids")


def _online(replies: Replies) -> Verdict:
    """connectedToControl is a field of Tailscale; headscale leaves it out."""
    devices = [one for one in values(replies["devices"].json, "devices.*") if isinstance(one, dict)]
    if not devices:
        return _none(replies, "devices")
    known = sum(isinstance(one.get("connectedToControl"), bool) for one in devices)
    odd = sum("connectedToControl" in one for one in devices) - known
    return verdict(not odd, f"known of {known} of {len(devices)}")


_TAILSCALE: tuple[Fact, ...] = (
    _lists.status("devices", "GET /devices", 200),
    *_lists.fields("devices", "GET /devices", [("devices", list)]),
    *_device.fields(
        "devices",
        "GET /devices",
        [
            ("devices.*", dict),
            ("devices.*.id", str),
            ("devices.*.nodeId", str),
            ("devices.*.hostname", str),
            ("devices.*.name", str),
            ("devices.*.addresses", list),
            ("devices.*.addresses.*", _ADDRESS),
            ("devices.*.tags?", list, "Devices of ours are not recognised by their tags."),
            ("devices.*.created", _MOMENT, "An entry of an earlier machine is taken for the new node."),
            ("devices.*.lastSeen?", WHEN),
            ("devices.*.authorized?", bool),
            ("devices.*.isExternal?", bool),
            ("devices.*.isEphemeral?", bool),
            ("devices.*.keyExpiryDisabled?", bool),
            ("devices.*.expires?", WHEN),
        ],
    ),
    _lists.fact(
        "devices.online",
        "A device says by connectedToControl whether it is connected, or the field is absent",
        "true or false, or absent",
        ("devices",),
        _online,
        basis=Basis.RECORDED,
        why="A node is taken for connected when it is not.",
    ),
    _lists.status("keys", "GET /keys?all=true", 200),
    *_lists.fields("keys", "GET /keys?all=true", [("keys", list)]),
    *_key.fields(
        "keys",
        "GET /keys?all=true",
        [("keys.*", dict), ("keys.*.id", str), ("keys.*.description?", str), ("keys.*.expires?", WHEN)],
    ),
    _lists.fact("keys.whole", "Keys are listed whole, or as ids alone", "one of the two", ("keys",), _whole, basis=Basis.RECORDED),
    _errors.status("unknown_device", "A look at an unknown device", 404),
    *_errors.fields("unknown_device", "A look at an unknown device", [("message", str)]),
    _errors.status("unknown_key", "A look at an unknown key", 404),
    *_errors.fields("unknown_key", "A look at an unknown key", [("message", str)]),
    _errors.status("bad_token", "A call with an invalid token", 401),
    *_errors.fields("bad_token", "A call with an invalid token", [("message", str)]),
)
TAILSCALE = Table("tailscale", _V2, _TAILSCALE)

# ---- headscale's API v1

_V1 = (
    Question("nodes", "GET", "/node"),
    Question("keys", "GET", "/preauthkey"),
    Question("policy", "GET", "/policy", also=(500,)),
    Question("bad_key", "GET", "/node", credential=False),
)
_own = Group(
    "headscale", _HEADSCALE, Basis.RECORDED, "Nodes or keys are not found: machines wait in vain, and orphans are not removed."
)
_own_node = Group(
    "headscale",
    _HEADSCALE,
    Basis.RECORDED,
    "A node is not recognised, or is taken for connected when it is not.",
    may_be_empty=True,
)
_own_key = Group(
    "headscale", _HEADSCALE, Basis.RECORDED, "A key whose machine never came is not found and not expired.", may_be_empty=True
)


def _no_policy_or_text(replies: Replies) -> Verdict:
    reply = replies["policy"]
    if reply.status == 200:
        found = values(reply.json, "policy")
        return verdict(
            bool(found) and isinstance(found[0], str), "a text" if found and isinstance(found[0], str) else "another form"
        )
    return verdict(reply.status in (404, 500), f"HTTP {reply.status}: there is none")


def _refused_key(replies: Replies) -> Verdict:
    reply = replies["bad_key"]
    if reply.status == 200:
        return not_seen("HTTP 200")
    return verdict(reply.status == 401, f"HTTP {reply.status}")


_HEADSCALE_V1: tuple[Fact, ...] = (
    _own.status("nodes", "GET /node", 200),
    *_own.fields("nodes", "GET /node", [("nodes", list)]),
    *_own_node.fields(
        "nodes",
        "GET /node",
        [
            ("nodes.*", dict),
            ("nodes.*.id", str),
            ("nodes.*.name", str),
            ("nodes.*.givenName", str),
            ("nodes.*.ipAddresses", list),
            ("nodes.*.tags", list, "Nodes of ours are not recognised by their tags."),
            ("nodes.*.tags.*", _TAG),
            ("nodes.*.online", bool),
            ("nodes.*.createdAt", WHEN),
            ("nodes.*.preAuthKey?", (dict, None)),
        ],
    ),
    _own.status("keys", "GET /preauthkey", 200),
    *_own.fields("keys", "GET /preauthkey", [("preAuthKeys", list)]),
    *_own_key.fields(
        "keys",
        "GET /preauthkey",
        [
            ("preAuthKeys.*", dict),
            ("preAuthKeys.*.id", str),
            ("preAuthKeys.*.expiration", WHEN, "A key that was made by a lost call is not found by its end."),
            ("preAuthKeys.*.used", bool),
            ("preAuthKeys.*.reusable", bool),
            ("preAuthKeys.*.createdAt", WHEN),
        ],
    ),
    _own.fact("policy", "The policy is a text, or there is none (404 or 500)", "a text, or none", ("policy",), _no_policy_or_text),
    _own.fact("bad_key.http", "A call with an invalid key is answered 401", "HTTP 401", ("bad_key",), _refused_key),
)
HEADSCALE = Table("headscale", _V1, _HEADSCALE_V1)
