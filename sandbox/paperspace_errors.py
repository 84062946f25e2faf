# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors of Paperspace's API."""

from __future__ import annotations

import typing as t

STATUS = {
    "PARSE_ERROR": 400,
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_SUPPORTED": 405,
    "CONFLICT": 409,
    "PRECONDITION_FAILED": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "TOO_MANY_REQUESTS": 429,
}
CODES = {status: code for code, status in STATUS.items()}


class Refused(Exception):
    """An error answer of the API: ``code`` decides the status. ``issues`` are (path, message) of a failed validation."""

    def __init__(
        self, code: str, message: str, issues: t.Sequence[tuple[str, str]] = (), headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = STATUS[code], headers or {}
        self.body: dict[str, t.Any] = {"code": code, "message": message}
        if issues:
            self.body["issues"] = [{"message": why, "path": path.split(".")} for path, why in issues]


def invalid(*issues: tuple[str, str]) -> Refused:
    """Fields that cannot be so: pairs of path and reason."""
    return Refused("BAD_REQUEST", "Input validation failed", issues)


def missing(kind: str) -> Refused:
    return Refused("NOT_FOUND", f"{kind} not found")


def refused_with(status: int, message: str) -> Refused:
    """The refusal with the code that belongs to ``status``."""
    return Refused("BAD_REQUEST" if status == 400 else CODES[status], message)
