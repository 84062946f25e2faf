# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine was given, read as the machine itself would read it.

An own machine boots Talos and reads a machine configuration; a rented one boots Ubuntu, whose cloud-init reads user data. Both end in an
:class:`Intent`: what the machine will try to become.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

import yaml

from .guard import Guard
from .hub import Tunnel

TALOS, UBUNTU = "talos", "ubuntu"
QUALIFIED = re.compile(r"^(?:(?=.{1,253}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
VALUE = re.compile(r"^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")
NAME = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
BOOTSTRAP_TOKEN = re.compile(r"^[a-z0-9]{6}\.[a-z0-9]{16}$")

_NODE_LABELS = {
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
}


class Refused(Exception):
    """The machine cannot do what it was given. ``step`` is where its story stops, the message what its log says. ``program`` is the text of
    the bootstrap program when that one found it out."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step
        self.program = ""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """How the machine enters the tailnet. ``login_server`` empty = the one every client knows."""

    key: str
    hostname: str
    login_server: str = ""
    advertise_tags: tuple[str, ...] = ()
    advertise_routes: tuple[str, ...] = ()
    accept_routes: bool = False


@dataclasses.dataclass(frozen=True)
class Intent:
    """What a machine was told to become. ``labels`` are set by the kubelet itself when ``labels_at_registration``, otherwise by one
    update of the Node afterwards, together with ``annotations`` and ``late_taints``. ``program`` is the text of the bootstrap program, whose
    steps are ``steps``; Talos has none."""

    lane: str
    node_name: str
    server: str
    ca_pem: str
    token: str
    kubelet_version: str
    mesh: Mesh | None = None
    tunnel: Tunnel | None = None
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    late_taints: tuple[dict[str, str], ...] = ()
    labels_at_registration: bool = False
    node_subnets: tuple[str, ...] = ()
    os_image: str = "Ubuntu 24.04"
    schematic: str = ""
    installer: str = ""
    gpus_wanted: int | None = None
    trustd: tuple[str, str] | None = None
    program: str = ""
    steps: tuple[str, ...] = ()
    csr_seconds: float = 600.0
    guard: Guard | None = None


def up_flags(words: t.Sequence[str]) -> dict[str, t.Any]:
    """The flags of ``tailscale up`` that matter here. ValueError for a flag it does not know."""
    found: dict[str, t.Any] = {}
    names = {
        "login-server": "login_server",
        "advertise-tags": "advertise_tags",
        "advertise-routes": "advertise_routes",
        "accept-routes": "accept_routes",
    }
    ignored = {
        "accept-dns",
        "netfilter-mode",
        "timeout",
        "ssh",
        "shields-up",
        "snat-subnet-routes",
        "reset",
        "operator",
        "hostname",
    }
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if name in ignored and word.startswith("--"):
            continue
        if name not in names or not word.startswith("--"):
            raise ValueError(f"flag provided but not defined: -{name}")
        if name == "accept-routes":
            found["accept_routes"] = not equals or value.lower() in ("true", "1", "t")
        elif name == "login-server":
            found["login_server"] = value
        else:
            found[names[name]] = tuple(part for part in value.split(",") if part)
    return found


def kubelet_may_set(label: str) -> bool:
    """Whether a kubelet may give itself this label: outside the Kubernetes domains all, inside them a short list."""
    domain, slash, _name = label.partition("/")
    if not slash or not re.search(r"(^|\.)(kubernetes|k8s)\.io$", domain):
        return True
    return label in _NODE_LABELS or bool(re.search(r"(^|\.)(node|kubelet)\.kubernetes\.io$", domain))


def label_fault(labels: t.Any) -> str:
    """Why these are no labels; empty when they are."""
    if not isinstance(labels, dict):
        return "labels must be a mapping"
    for key, value in labels.items():
        if not isinstance(key, str) or not QUALIFIED.match(key):
            return f"invalid label key {key!r}"
        if not isinstance(value, str) or not VALUE.match(value):
            return f"invalid label value {value!r} of {key}"
    return ""


def taint_fault(taints: t.Any) -> str:
    """Why this is no list of taints; empty when it is one."""
    if not isinstance(taints, list):
        return "registerWithTaints must be a list"
    for taint in taints:
        if not isinstance(taint, dict) or not QUALIFIED.match(str(taint.get("key", ""))):
            return f"invalid taint {taint!r}"
        if taint.get("effect") not in EFFECTS or not VALUE.match(str(taint.get("value") or "")):
            return f"invalid taint {taint.get('key')}: value {taint.get('value')!r}, effect {taint.get('effect')!r}"
    return ""


def yaml_fault(error: yaml.YAMLError) -> str:
    """What is wrong and where, without a word of the text itself: it may hold a key."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    return f"{place}{getattr(error, 'problem', None) or 'not readable'}"


def clean_taints(taints: t.Iterable[t.Mapping[str, t.Any]]) -> tuple[dict[str, str], ...]:
    """Taints as the API server wants them."""
    return tuple(
        {"key": taint["key"], "effect": taint["effect"], **({"value": str(taint["value"])} if taint.get("value") else {})}
        for taint in taints
    )
