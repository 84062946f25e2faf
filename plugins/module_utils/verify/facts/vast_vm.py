# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's virtual machines, which lane kubelet makes nodes of: a start script that says what it finds, and the facts that its lines show.

Nothing documents where the output of a start script goes. So each line is written twice, to the console and to the standard output, and
names the one it was written to. Lines are read by closed patterns: nothing else of a log is kept."""

from __future__ import annotations

import re
import typing as t

from ...providers.vast.launch import VM_IMAGE
from .fact import Basis, BootScript, Fact, Group, Question, Replies, Row, Verdict, not_seen, verdict
from .life import MACHINE

VM, LOG_ADDRESS = "vm", "vm_log"
_REQUEST = Question(LOG_ADDRESS, "PUT", "/api/v0/instances/request_logs/{}/", json={"tail": "200"})
_MODULES = ("overlay", "br_netfilter", "nf_conntrack", "vxlan", "tun", "wireguard")
_LEAST_DISK = 20
_VARIABLE, _PIECE = "TGP_VERIFY_PIECE", "QUJD+/Z=" * 30  # as long, and of the same letters, as a piece of a payload
_NONE, _ODD = "", "?"
SCRIPT = f"""\
#!/bin/bash
# Says what this virtual machine is. Written by the Ansible collection tgp.gpu.
PATH=$PATH:/usr/sbin:/sbin
say() {{
  printf 'tgp-verify stdout %s %s\\n' "$1" "$2"
  printf 'tgp-verify console %s %s\\n' "$1" "$2" >/dev/console
}}
say begin 1
say user "$(id -u)"
say virtualization "$(systemd-detect-virt)"
say system "$(. /etc/os-release; printf '%s-%s' "$ID" "$VERSION_ID")"
say kernel "$(uname -r)"
say init "$(cat /proc/1/comm)"
say cgroup "$(stat -f -c %T /sys/fs/cgroup)"
say disk "$(df --output=avail -BG / | tr -dc 0-9)"
say variable "$({{ cat /etc/environment; env; }} | tr -d "\\"'" |
  grep -oE '{_VARIABLE}=[A-Za-z0-9+/=]+' | sort -u | cut -d= -f2- | tr -d '\\n' | wc -c)"
say gpus "$(for d in /sys/bus/pci/devices/*; do grep -qs 0x10de $d/vendor && grep -s ^0x03 $d/class; done | wc -l)"
say lacking "$(for m in {" ".join(_MODULES)}; do modprobe $m || printf '%s,' $m; done)"
say driver "$(timeout 60 nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
say end 1
"""
_PATTERNS = {
    "begin": r"1",
    "user": r"\d{1,6}",
    "virtualization": r"[a-z][a-z-]{0,19}",
    "system": r"[a-z]{1,20}-\d{1,2}(\.\d{1,2})?",
    "kernel": r"\d{1,2}\.\d{1,3}\.\d{1,3}(-\d{1,5})?(-[a-z]{1,20})?",
    "init": r"[a-z][a-z-]{0,19}",
    "cgroup": r"[a-z]{1,10}2?(fs)?",
    "disk": r"\d{1,6}",
    "variable": r"\d{1,4}",
    "gpus": r"\d{1,2}",
    "lacking": rf"(({'|'.join(_MODULES)}),)+",
    "driver": r"\d{1,4}\.\d{1,4}(\.\d{1,3})?",
    "end": r"1",
}
_LINE = re.compile(r"\btgp-verify (stdout|console) ([a-z]+)(?: (.*?))?\s*$")


def read_markers(log: str) -> dict[str, str]:
    """What the script said, by name: "" where a command had no output, "?" for what does not have the form it must have. ``stdout`` and
    ``console`` are there when a line came that way."""
    found: dict[str, str] = {}
    for line in log.splitlines():
        match = _LINE.search(line)
        if match is None or match[2] not in _PATTERNS:
            continue
        value = match[3] or _NONE
        found[match[1]] = "1"
        found.setdefault(match[2], value if not value or re.fullmatch(_PATTERNS[match[2]], value) else _ODD)
    return found


def _unable(replies: Replies) -> str:
    """A create call without a key would be refused."""
    body = replies["keys"].json if "keys" in replies else None
    keys = body.get("ssh_keys") if isinstance(body, dict) else body
    return "the account has no SSH key, and Vast.ai makes no virtual machine without one" if keys == [] else ""


BOOT_SCRIPT = BootScript(VM, "kubelet", SCRIPT, {_VARIABLE: _PIECE}, _REQUEST, read_markers, "end", _unable)
_SOURCE = "Vast.ai's guides of virtual machines, and what the bootstrap program of lane kubelet needs"
_JOIN = "A machine of Vast.ai is rented for lane kubelet and never joins."
_vm = Group("vast", _SOURCE, Basis.UNVERIFIED, _JOIN, rented=True, lane="kubelet")
_log = Group(
    "vast",
    "Vast.ai's API reference of August 2026 and its official clients",
    consequence="Why a machine of Vast.ai does not join is not known.",
    rented=True,
    lane="kubelet",
)


def _said(replies: Replies) -> dict[str, t.Any]:
    body = replies[VM].json
    return body if isinstance(body, dict) else {}


def _silence(said: t.Mapping[str, t.Any]) -> Verdict:
    """What it means that a line is not in the log."""
    if said.get("begin"):
        return not_seen("the script began, and its log lacks this line")
    if said.get("lines"):
        return not_seen(
            f"the log has {said['lines']} lines and none of the start script: it did not run, or its output is not in the log"
        )
    return not_seen("the log came, and is empty" if said.get("logs") else "no log was uploaded in time")


def _check(name: str, good: t.Callable[[str], bool], shown: t.Callable[[str], str] = str) -> t.Callable[[Replies], Verdict]:
    """What the line ``name`` says. ``good`` sees a value of the right form, or "" for a command without output."""

    def check(replies: Replies) -> Verdict:
        said = _said(replies)
        value = said.get(name)
        if value is None:
            return _silence(said)
        known = isinstance(value, str) and (value == _NONE or re.fullmatch(_PATTERNS[name], value) is not None)
        if not known:
            return verdict(False, "something of another form")
        return verdict(good(value), shown(value) or "nothing")

    return check


def _ran(replies: Replies) -> Verdict:
    said = _said(replies)
    if not said.get("begin"):
        return _silence(said)
    return verdict(
        bool(said.get("end")), f"began and {'ended' if said.get('end') else 'did not end'} within {said.get('after', 0):.0f} s"
    )


def _on_console(replies: Replies) -> Verdict:
    said = _said(replies)
    if not said.get("console") and not said.get("stdout"):
        return _silence(said)
    return verdict(bool(said.get("console")), "on the console" if said.get("console") else "only what went to the standard output")


def _fact(name: str, statement: str, expected: str, check: t.Callable[[Replies], Verdict], why: str = _JOIN) -> Fact:
    return _vm.fact(f"{VM}.{name}", statement, expected, (VM,), check, why=why)


def _words(*words: str) -> t.Callable[[str], bool]:
    return lambda value: value in words


FACTS: tuple[Fact, ...] = (
    *_vm.fields(MACHINE, "GET /api/v0/instances/{id}/ of a virtual machine", [Row("instances.image_uuid", frozenset({VM_IMAGE}))]),
    _log.status(LOG_ADDRESS, "PUT /api/v0/instances/request_logs/{id}/", 200),
    *_log.fields(LOG_ADDRESS, "PUT /api/v0/instances/request_logs/{id}/", [("success", bool), ("result_url", str)]),
    _fact("ran", "A virtual machine runs its start script, which begins with #!", "began and ended", _ran),
    _fact(
        "on_console",
        "The log of a virtual machine has what is written to its console",
        "on the console",
        _on_console,
        why="Why a machine of Vast.ai does not join is not known: its bootstrap program writes to the console.",
    ),
    _fact(
        "user",
        "The start script runs as root",
        "user id 0",
        _check("user", _words("0"), lambda value: value and f"user id {value}"),
    ),
    _fact(
        "virtualization", "It is a virtual machine, not a container", "kvm or qemu", _check("virtualization", _words("kvm", "qemu"))
    ),
    _fact(
        "system",
        "It is an Ubuntu that lane kubelet supports",
        "ubuntu-22.04, ubuntu-24.04 or ubuntu-26.04",
        _check("system", _words("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")),
    ),
    _fact(
        "kernel",
        "Its kernel is one of Ubuntu's packages",
        "a release like 5.15.0-130-generic",
        _check("kernel", lambda value: re.fullmatch(r"[\d.]+-\d+-[a-z]+", value) is not None),
        why="Where the image has no NVIDIA driver none can be installed: there are no modules for that kernel.",
    ),
    _fact("init", "systemd is process 1", "systemd", _check("init", _words("systemd"))),
    _fact("cgroup", "It has cgroup v2", "cgroup2fs", _check("cgroup", _words("cgroup2fs"))),
    _fact(
        "disk",
        f"At least {_LEAST_DISK} GiB of its root disk are free",
        f"{_LEAST_DISK} GiB or more",
        _check("disk", lambda value: value.isdecimal() and int(value) >= _LEAST_DISK, lambda value: f"{value or 0} GiB"),
    ),
    _fact(
        "variable",
        f"A variable of {len(_PIECE)} characters is in its environment or in /etc/environment, complete",
        f"{len(_PIECE)} characters",
        _check("variable", _words(str(len(_PIECE))), lambda value: f"{value or 0} characters"),
        why="The payload of a node, which comes in such variables, does not arrive, so the machine never joins.",
    ),
    _fact(
        "gpus",
        "Its PCI bus shows as many NVIDIA GPUs as were rented",
        "1",
        _check("gpus", _words("1")),
    ),
    _fact(
        "lacking",
        f"The kernel modules {', '.join(_MODULES)} can be loaded",
        "none is lacking",
        _check(
            "lacking",
            _words(_NONE),
            lambda value: f"{value.rstrip(',').replace(',', ', ')} lacking" if value else "none is lacking",
        ),
    ),
    _fact(
        "driver",
        f"{VM_IMAGE} has an NVIDIA driver, which answers when the start script runs",
        "a version",
        _check("driver", lambda value: value != _NONE, lambda value: value and f"version {value}"),
        why="The bootstrap program installs a driver: a join takes some minutes longer, and fails if the image has parts of another one.",
    ),
)
