# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The web firewall in front of Paperspace's API: it judges bodies by their looks and answers in HTML."""

from __future__ import annotations

import json
import re
import typing as t

import flask

_PIPED = re.compile(r"\b(curl|wget)\b[^|\n]*\|\s*(sudo\s+(-\S+\s+)*)?(\S*/)?(ba|da|z|k)?sh\b")
_PAGE = """<!DOCTYPE html>
<html lang="en-US">
<head><title>Attention Required! | Cloudflare</title></head>
<body><h1>Sorry, you have been blocked</h1>
<p>You are unable to access paperspace.com. This website is using a security service to protect itself from online attacks.</p>
<p>Ray ID: {ray}</p></body>
</html>
"""


def looks_hostile(raw: bytes) -> bool:
    """Whether a line of any text in the body pipes a download into a shell."""
    text = raw.decode(errors="replace")
    try:
        texts = list(_texts(json.loads(text)))
    except ValueError:
        texts = [text]
    return any(_PIPED.search(line) for one in texts for line in one.splitlines())


def _texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def page(number: int) -> flask.Response:
    """The answer to whom it blocks."""
    headers = {"Server": "cloudflare", "CF-RAY": f"{number:016x}-EWR"}
    return flask.Response(_PAGE.format(ray=f"{number:016x}"), 403, headers, content_type="text/html; charset=UTF-8")
