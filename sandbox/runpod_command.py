# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a container in the forms that RunPod takes: a text (``args``), or two lists in exec form (``entrypoint`` and ``cmd``).

The lists are kept in the text, as a JSON object; a text that is none is split into words and is the ``cmd``.
"""

from __future__ import annotations

import json
import shlex
import typing as t

from .runpod_account import Problem

FIELDS = ("entrypoint", "cmd")


def parts(args: str) -> dict[str, list[str]]:
    """Both lists of a kept text."""
    if (lists := _lists(args)) is not None:
        return lists
    try:
        return {"entrypoint": [], "cmd": shlex.split(args)}
    except ValueError:  # open quotes
        return {"entrypoint": [], "cmd": [args]}


def _lists(args: str) -> dict[str, list[str]] | None:
    """What a kept JSON object says; None for a text."""
    try:
        found = json.loads(args)
    except ValueError:
        return None
    if not isinstance(found, dict) or not found or not set(found) <= set(FIELDS):
        return None
    if not all(isinstance(words, list) for words in found.values()):
        return None
    return {name: [str(word) for word in found.get(name, [])] for name in FIELDS}


def merged(kept: str, request: t.Mapping[str, t.Any]) -> str:
    """The text to keep after a request: each field that it has counts; 400 when text and lists say different things."""
    given = {name: request[name] for name in FIELDS if name in request}
    if "args" in request:
        said = parts(request["args"])
        if any(said[name] != words for name, words in given.items()):
            raise Problem(400, "args describes another command than entrypoint and cmd")
        return str(request["args"])
    if not given:
        return kept
    lists = {name: words for name, words in {**parts(kept), **given}.items() if words}
    return json.dumps(lists, separators=(",", ":")) if lists else ""


def started(args: str, program: bool) -> str:
    """What runs in the container, as a text for a shell; "" = the image as it is. ``program``: the image's own ENTRYPOINT is a program, which
    takes a ``cmd`` as its arguments; any other runs them."""
    found = parts(args)
    words = [*found["entrypoint"], *found["cmd"]]
    if program and words and not found["entrypoint"]:
        return shlex.join(["/entrypoint", *words])
    return args if _lists(args) is None else shlex.join(words)
