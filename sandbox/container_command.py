# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container's command comes to: which mesh client it starts and how, then which command stays, for how long."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import typing as t

from . import payload
from .container_script import Script, Started
from .container_words import ShellFault

KERNEL, USERSPACE = "kernel", "userspace"
_PASSING = frozenset((  # commands that end by themselves
    ".", ":", "[", "[[", "alias", "apk", "apt", "apt-get", "awk", "base64", "break", "cat", "cd", "chmod", "chown", "command",
    "continue", "cp", "curl", "cut", "date", "declare", "df", "dirname", "dpkg", "echo", "env", "exit", "export", "expr",
    "false", "find", "getent", "git", "grep", "groups", "gunzip", "gzip", "head", "hostname", "id", "install", "kill",
    "ldconfig", "ln", "local", "ls", "mkdir", "mktemp", "mount", "mv", "nproc", "nvidia-smi", "ps", "pip", "pip3", "printenv",
    "printf", "pwd", "read", "readlink", "return", "rm", "sed", "seq", "set", "sha256sum", "sha512sum", "shift", "sleep",
    "sort", "source", "stat", "sync", "sysctl", "tail", "tailscale", "tar", "tee", "test", "touch", "tr", "trap", "true",
    "type", "ulimit", "umask", "uname", "unset", "unzip", "useradd", "wc", "wget", "which", "whoami", "xargs", "yum", "zcat",
))  # fmt: skip
_LOGIN = ("up", "login")


@dataclasses.dataclass(frozen=True)
class Plan:
    """``client``: kernel, userspace or "" (none). ``mesh`` None: nobody logs in. ``strict``: a failed login ends the container.
    ``persistent``: where the client keeps its state. ``command`` stays for ``lasts`` seconds (inf: for ever) and leaves ``code``.
    ``fault``: what the shell says instead of all that; ``mesh_fault``: what the login says before it tries.

    ``first`` are the lines that its scripts print before the login, ``later`` those after it and before the command that stays, ``excuse``
    those that a failed login makes them print (OUTPUT stands for the client's own words). ``hidden``: daemon and login write to files."""

    client: str = ""
    mesh: payload.Mesh | None = None
    mesh_fault: str = ""
    strict: bool = False
    state_dir: str = ""
    command: str = ""
    lasts: float = math.inf
    code: int = 0
    fault: str = ""
    first: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    excuse: tuple[str, ...] = ()
    hidden: bool = False


def plan(image: str, command: str, environment: t.Mapping[str, str], hostname: str) -> Plan:
    """Read a container's ``command``; empty: the image's own entry point, which stays.

    An image may bring the client in its entry point, steered by variables: it is taken to, when TS_AUTHKEY and TS_USERSPACE are given
    and the command itself starts none.
    """
    script = Script(environment)
    try:
        if command.strip():
            script.read(command)
        elif re.search(r"(^|/)tailscale/tailscale(:|@|$)", image):
            script.read("containerboot")
        found = _of(script, hostname) if script.commands else Plan(command="" if command.strip() else f"(entry point of {image})")
        if command.strip() and not script.commands:
            found = dataclasses.replace(found, lasts=0.0, first=tuple(line for _place, line in script.lines))
        if not found.client and environment.get("TS_AUTHKEY") and "TS_USERSPACE" in environment:
            client = _containerboot(script, Plan(), hostname)
            found = dataclasses.replace(
                client, command=found.command, lasts=found.lasts, code=found.code, first=found.first, later=found.later
            )
        return found
    except ShellFault as fault:
        return Plan(fault=f"/bin/sh: {fault}", lasts=0.0, code=2)


def _of(script: Script, hostname: str) -> Plan:
    found = Plan()
    logins = login = 0
    for place, started in enumerate(script.commands):
        if started.name == "tailscaled" and not found.client:
            found = dataclasses.replace(
                found,
                client=USERSPACE if _option(started.words, "tun") == "userspace-networking" else KERNEL,
                state_dir=_option(started.words, "statedir") or _option(started.words, "state"),
                hidden=started.hidden,
            )
            if not started.background:  # nothing after it is ever reached
                return _spoken(script, dataclasses.replace(found, command=shlex.join(started.words)), place, place)
        elif started.name == "containerboot":
            return _spoken(script, _containerboot(script, found, hostname), place, place)
        elif started.name == "tailscale" and (words := _login_words(started)) is not None and not logins:
            logins, login = 1, place
            found = dataclasses.replace(
                _login(script, found, started, words, hostname), excuse=started.excuse, hidden=started.hidden
            )
    found, stays = _stays(script.commands, found)
    return _spoken(script, found, login if logins else stays, stays)


def _spoken(script: Script, found: Plan, login: int, stays: int) -> Plan:
    """What is printed before the command at ``login`` is started, and then up to the one at ``stays``."""
    return dataclasses.replace(
        found,
        first=tuple(line for place, line in script.lines if place <= login),
        later=tuple(line for place, line in script.lines if login < place <= stays),
    )


def _option(words: t.Sequence[str], name: str) -> str:
    """The value of a Go flag, in one word or two."""
    for index, word in enumerate(words):
        flag, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and flag == name:
            return value if equals else (words[index + 1] if index + 1 < len(words) else "")
    return ""


def _login_words(started: Started) -> list[str] | None:
    """The flags of a login; None when this call of the client is no login."""
    words = list(started.words[1:])
    while words and words[0].startswith("-"):
        words = words[1:] if "=" in words[0] else words[2:]
    return words[1:] if words and words[0] in _LOGIN else None


def _login(script: Script, found: Plan, started: Started, words: list[str], hostname: str) -> Plan:
    strict = started.guarded and not started.conditional
    if not found.client:
        return dataclasses.replace(
            found, strict=strict, mesh_fault="failed to connect to local tailscaled; it doesn't appear to be running"
        )
    try:
        return dataclasses.replace(found, strict=strict, mesh=_mesh(script, words, hostname))
    except ValueError as error:
        return dataclasses.replace(found, strict=strict, mesh_fault=str(error))


def _mesh(script: Script, words: list[str], hostname: str) -> payload.Mesh:
    key, name, others = "", "", []
    index = 0
    while index < len(words):
        flag, equals, value = words[index].lstrip("-").partition("=")
        if not equals and index + 1 < len(words) and not words[index + 1].startswith("-"):
            value, index = words[index + 1], index + 1
        if flag in ("auth-key", "authkey"):
            key = value
        elif flag == "hostname":
            name = value
        else:
            others.append(f"--{flag}={value}" if equals or value else f"--{flag}")
        index += 1
    if key.startswith("file:"):
        content = script.files.get(key.removeprefix("file:"))
        if content is None:
            raise ValueError(f"open {key.removeprefix('file:')}: no such file or directory")
        key = content.decode(errors="replace").strip()
    return payload.Mesh(key, name or hostname, **payload.up_flags(others))


def _containerboot(script: Script, found: Plan, hostname: str) -> Plan:
    """The program of the client's own image: its settings are variables."""
    value = script.variables.get
    words = [
        f"--auth-key={value('TS_AUTHKEY', '')}",
        f"--hostname={value('TS_HOSTNAME', '')}",
        *shlex.split(value("TS_EXTRA_ARGS", "")),
    ]
    found = dataclasses.replace(
        found,
        client=KERNEL if value("TS_USERSPACE", "true").lower() in ("false", "0", "f") else USERSPACE,
        strict=True,
        state_dir=value("TS_STATE_DIR", ""),
        command="containerboot",
    )
    try:
        return dataclasses.replace(found, mesh=_mesh(script, words, hostname))
    except ValueError as error:
        return dataclasses.replace(found, mesh_fault=str(error))


def _stays(commands: t.Sequence[Started], found: Plan) -> tuple[Plan, int]:
    """The command that holds the container, and its place; when none does, it ends after the last."""
    lasts, code, last, held = 0.0, 0, "", ""
    for place, started in enumerate(commands):
        if started.conditional:
            continue
        text, name = shlex.join(started.words), started.name
        if name == "wait":
            if held:
                return dataclasses.replace(found, command=held), place
        elif name == "exit":
            code = int(started.words[1]) if len(started.words) > 1 and started.words[1].isdigit() else code
            return dataclasses.replace(found, command=last or text, lasts=lasts, code=code), place
        elif started.background:
            held = text if name not in _PASSING and (name != "tailscaled" or not held) else held
        elif name == "sleep" or (name == "tail" and "-f" in started.words):
            seconds = _sleep(started.words)
            last, lasts = text, lasts + seconds
            if seconds == math.inf:
                return dataclasses.replace(found, command=text), place
        elif name in _PASSING:
            last, code = text, 1 if name == "false" else 0
            if code and started.guarded:
                return dataclasses.replace(found, command=last, lasts=lasts, code=code), place
        else:
            return dataclasses.replace(found, command=text), place
    behind = [
        (place, one)
        for place, one in enumerate(commands)
        if one.conditional and not one.background and one.name not in (*_PASSING, "tailscaled", "wait")
    ]
    if behind and not code:
        return dataclasses.replace(found, command=shlex.join(behind[-1][1].words)), behind[-1][0]
    return dataclasses.replace(found, command=last, lasts=lasts, code=code), len(commands)


def _sleep(words: t.Sequence[str]) -> float:
    if words[0].rpartition("/")[2] == "tail" or "infinity" in words or "inf" in words:
        return math.inf
    factors = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    found = [re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", word) for word in words[1:]]
    return sum(float(one[1]) * factors[one[2]] for one in found if one)
