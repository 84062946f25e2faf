# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusals of Vast.ai's API, in the forms it uses, and the reading of a request's body, where they begin."""

from __future__ import annotations

import typing as t

import flask


class Refused(Exception):
    """An error answer. Extra fields stand beside ``error`` and ``msg``; an answer of ``text`` is no JSON at all."""

    def __init__(self, status: int, error: str, msg: str, *, text: bool = False, **more: t.Any) -> None:
        super().__init__(msg)
        self.status, self.text = status, msg if text else ""
        self.body: dict[str, t.Any] = {"success": False, "error": error, "msg": msg, **more}
        self.headers: dict[str, str] = {}


def invalid(msg: str, **more: t.Any) -> Refused:
    return Refused(400, "invalid_args", msg, **more)


def no_such_instance(number: t.Any) -> Refused:
    return Refused(404, "no_such_instance", f"Instance {number} not found.")


def no_such_ask(number: int, *, gone: bool) -> Refused:
    """The offer cannot be had: it never was (3603) or was taken a moment ago (3907)."""
    if gone:
        msg = f"error 404/3907: no_such_ask Instance type by id {number} is no longer available."
        return Refused(410, "no_such_ask", msg, ask_id=number)
    return Refused(
        400, "invalid_args", f"error 404/3603: no_such_ask Instance type by id {number} is not available.", ask_id=number
    )


def body() -> dict[str, t.Any]:
    """The JSON object of the request; nothing at all counts as an empty one."""
    raw = flask.request.get_data()
    found = flask.request.get_json(force=True, silent=True) if raw else {}
    if not isinstance(found, dict):
        raise invalid("The body must be a JSON object.")
    return found
