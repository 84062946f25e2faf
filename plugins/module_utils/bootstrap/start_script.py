# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first boot of lane ``kubelet`` as a shell script, for clouds that run a script where others read a cloud-config."""

from __future__ import annotations

import base64
import posixpath
import shlex

from ..talos.documents import Document
from .kubelet.cloud_config import UNIT, Boot

_HEAD = f"""\
#!/bin/bash
# Makes this machine a Kubernetes worker. Written by the Ansible collection tgp.gpu.
set -eu
umask 077
# the unit is written last: when it is there, a boot before this one has done the rest
[[ ! -e {UNIT} ]] || exec systemctl enable --now --no-block {posixpath.basename(UNIT)}
"""
_END = "TGP"


def start_script(made: Boot) -> str:
    """The text; it may be run at every boot. Files are never readable by others, not even for a moment, unless they shall be."""
    folders = dict.fromkeys(posixpath.dirname(file["path"]) for file in made.files)
    parts = [_HEAD, f"(umask 022 && mkdir -p {shlex.join(folders)})\n"]
    parts += [_written(file) for file in made.files]
    parts += [_run(command) for command in made.commands]
    return "".join(parts)


def _run(command: tuple[str, ...]) -> str:
    """As cloud-init runs it: folders above one that is made are for everybody to pass, the mode is for the last alone."""
    if command[0] == "mkdir":
        return f"# shellcheck disable=SC2174\n(umask 022 && {shlex.join(command)})\n"
    return f"{shlex.join(command)}\n"


def _written(file: Document) -> str:
    """A here-document: as it is, or in base64 where a here-document would change it (it ends with a line end and holds no NUL)."""
    path, content = shlex.quote(file["path"]), str(file["content"])
    lines = content.split("\n")
    plain = lines[-1] == "" and len(lines) > 1 and "\0" not in content and _END not in lines
    body = content if plain else base64.b64encode(content.encode()).decode() + "\n"
    target = f">{'>' if file.get('append') else ''}{path}"
    return f"{'cat' if plain else 'base64 -d'} {target} <<'{_END}'\n{body}{_END}\nchmod {file['permissions']} {path}\n"
