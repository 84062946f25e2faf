# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes that do not run Talos, by SSH, for what their own system says of NVIDIA's driver. One connection per node, which only reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import typing as t

from ...core.redact import program_environment, redact_foreign
from ..gpus.facts import HostSystem, driver_version

_PART = "==tgp "
_CONNECT, _WHOLE = 8, 60  # seconds: for the connection, and for all of it (nvidia-smi may hang on a lost GPU)
_MOST_ADDRESSES = 2
_LONGEST = 300  # characters of an error
_SSH_FAILED = 255  # ssh's own exit status; every other is the command's
#: what is read, by the part of the answer that shows that it was
_NEEDS = {"modules": "modules", "driver": "version", "toolkit": "runtime", "nvidia-smi": "smi", "kernel log": "xids"}
_UNSENT = "it was not asked"
#: what the node runs, as the user that logs in; every file is one that all may read
SCRIPT = r"""
LC_ALL=C; export LC_ALL
part() { printf '\n==tgp %s\n' "$1"; }
part kernel; uname -r
part modules; cut -d' ' -f1 /proc/modules
part version; cat /proc/driver/nvidia/version 2>/dev/null
part packages; dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' '*nvidia*' 2>/dev/null
part toolkit; nvidia-ctk --version 2>/dev/null
part runtime; grep -ls nvidia-container-runtime /etc/containerd/config.toml /etc/containerd/conf.d/*.toml
part smi
if command -v nvidia-smi >/dev/null; then timeout 20 nvidia-smi -L 2>&1; echo "==exit $?"; else echo ==absent; fi
part xids
if [ -n "$(journalctl -k -b -q -n 1 2>/dev/null)" ]; then journalctl -k -b -q --no-pager -o short-iso -g 'NVRM: Xid' 2>/dev/null | tail -n 20
else echo ==unreadable; fi
part end
"""
_MEANINGS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is another than the one in known_hosts"),
    (r"Host key verification failed|host key is known", "its host key is not known: accept it once by hand, or add it to known_hosts"),
    (r"Permission denied", "it refuses this user or key"),
    (r"(?i)can't open user config|bad configuration option", "the configuration of ssh cannot be used"),
)  # fmt: skip


class SshNodes:
    """``read`` never fails: what does not answer stands in ``unread``. Safe to use from several threads.

    ``key`` is the path of a private key, "" for what ssh itself finds. ``config`` is the path of ssh's configuration, "" for the user's; it
    says how host keys are checked, and by which hosts the way goes. Nothing is ever asked at the terminal.
    """

    def __init__(self, user: str, *, key: str = "", port: int = 22, config: str = "") -> None:
        self._user, self._port, self._key, self._config = user, port, os.path.expanduser(key), os.path.expanduser(config)

    def read(self, addresses: t.Sequence[str]) -> HostSystem:
        """By the first of a node's addresses that lets itself be reached."""
        if shutil.which("ssh") is None:
            return _unread("the program ssh is not installed here")
        why = _UNSENT
        for address in addresses[:_MOST_ADDRESSES]:
            try:
                done = self._run(address)
            except subprocess.TimeoutExpired:
                return _unread(f"{address} did not answer within {_WHOLE} s; nvidia-smi may hang on a lost GPU")
            except OSError as error:
                return _unread(f"ssh cannot be started: {error.strerror}")
            if done.returncode != _SSH_FAILED:
                return parse(done.stdout)
            why = _meaning(address, self._user, done.stderr)
        return _unread(why)

    def _run(self, address: str) -> subprocess.CompletedProcess[str]:
        options = [
            "BatchMode=yes",
            f"ConnectTimeout={_CONNECT}",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "PermitLocalCommand=no",
        ]
        command = ["ssh", "-T", "-l", self._user, "-p", str(self._port)]
        for option in [*options, *(["IdentitiesOnly=yes"] if self._key else [])]:
            command += ["-o", option]
        command += ["-i", self._key] if self._key else []
        command += ["-F", self._config] if self._config else []
        agent = {"SSH_AUTH_SOCK": os.environ["SSH_AUTH_SOCK"]} if os.environ.get("SSH_AUTH_SOCK") else {}
        return subprocess.run(
            [*command, "--", address, "sh -s"],
            input=SCRIPT, capture_output=True, text=True, errors="replace", timeout=_WHOLE, check=False,
            start_new_session=True, env=program_environment(agent),
        )  # fmt: skip


def _meaning(address: str, user: str, said: str) -> str:
    """Why ssh itself failed, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = redact_foreign(lines[-1])[:_LONGEST] if lines else "it says nothing"
    found = next((words for pattern, words in _MEANINGS if re.search(pattern, said)), "")
    return f"{user}@{address} by SSH: {found} ({last})" if found else f"{user}@{address} by SSH: {last}"


def _unread(why: str) -> HostSystem:
    return HostSystem(unread=tuple((what, why) for what in _NEEDS))


# ---- the answer


def parse(text: str) -> HostSystem:
    """What the answer of SCRIPT says. An answer that ends early leaves what is missing unknown."""
    parts = _parts(text)
    if "end" not in parts:
        whole = list(parts)[:-1]  # the last one may be cut
        parts = {name: parts[name] for name in whole}
    unread = {what: "its answer ended early" for what, part in _NEEDS.items() if part not in parts}
    modules = tuple(parts["modules"]) if "modules" in parts else None
    smi, gpus = _smi(parts.get("smi"))
    xids = parts.get("xids")
    if xids is not None and "==unreadable" in xids:
        unread["kernel log"], xids = "the user may not read the kernel's log (groups adm and systemd-journal may)", None
    return HostSystem(
        kernel=" ".join(parts.get("kernel", ())),
        modules=modules,
        driver=driver_version("\n".join((*parts["version"], ""))) if "version" in parts else None,
        packages=_installed(parts.get("packages")),
        toolkit=_toolkit(parts.get("toolkit")),
        runtime=bool(parts["runtime"]) if "runtime" in parts else None,
        smi=smi,
        gpus=gpus,
        xids=None if xids is None else tuple(redact_foreign(line)[:_LONGEST] for line in xids),
        unread=tuple(sorted(unread.items())),
    )


def _parts(text: str) -> dict[str, list[str]]:
    """Lines by part. What comes before the first one is the login's (a banner of the provider)."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_PART):
            lines = found.setdefault(line.removeprefix(_PART).strip(), [])
        elif line.strip():
            lines.append(line.strip())
    return found


def _installed(lines: t.Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of NVIDIA's packages that are installed (dpkg's state ii or hi), each with its version."""
    if lines is None:
        return None
    fields = [line.split() for line in lines]
    return tuple(" ".join(field[1:3]) for field in fields if len(field) >= 3 and field[0][1:2] == "i")


def _toolkit(lines: t.Sequence[str] | None) -> str | None:
    """The version of nvidia-ctk, "" where it is not installed."""
    if lines is None:
        return None
    match = re.search(r"version (\d\S*)", " ".join(lines))
    return match[1] if match else ""


def _smi(lines: t.Sequence[str] | None) -> tuple[str | None, int | None]:
    """Why nvidia-smi fails ("" where it does not), and the GPUs that it lists."""
    if lines is None:
        return None, None
    if "==absent" in lines:
        return "it is not installed", None
    status = next((line.removeprefix("==exit ") for line in lines if line.startswith("==exit ")), "")
    said = [line for line in lines if not line.startswith("==exit ")]
    gpus = sum(bool(re.match(r"GPU \d+: ", line)) for line in said)
    if status == "0" and gpus:
        return "", gpus
    if status == "124":
        return "it gives no answer within 20 s", None
    others = " ".join(line for line in said if not line.startswith("GPU ")) or f"it lists no GPU (exit status {status})"
    return redact_foreign(others)[:_LONGEST], gpus
