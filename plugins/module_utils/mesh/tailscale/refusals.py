# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the refusals of Tailscale and headscale mean, and what to do about each."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...core import errors
from .policy_requirements import line_of_owners


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried when the refusal came: the scope the call needs, the tags it named and who called."""

    scope: str = ""
    tags: tuple[str, ...] = ()
    caller: str = ""

    def tag_names(self) -> str:
        return ", ".join(self.tags) or "the tag"

    def policy_line(self) -> str:
        return line_of_owners(self.tags or ("tag:gpu",))


# (words of the refusal, cause, what to do); the first that matches counts, the text is a format string over an Attempt
_BY_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "must have tags set|must create tagged auth keys|key without tags",
        "tag",
        "Give at least one tag: a key made by an OAuth client belongs to no user and must carry tags.",
    ),
    (
        "invalid or not permitted|not defined in policy|may not assign tag|invalid_target",
        "tag",
        "The tailnet policy must define {tags} in tagOwners, owned by a tag that {caller} itself carries, for example {policy}.",
    ),
    (
        "cannot be untagged",
        "tag",
        "A tagged device keeps at least one tag; delete it and let it join anew to change its owner.",
    ),
    (
        "billing plan",
        "plan",
        "The tailnet's plan does not include this; no right or scope will help. See the plan's limits in the admin console.",
    ),
    (
        "does not have enough permissions|missing the required scope|cannot set scopes|insufficient",
        "scope",
        (
            "{caller} needs the scope {scope}. Scopes are fixed when an OAuth client is made: create a new one with auth_keys and "
            "devices:core and a tag. The same refusal comes when the client's own tag is not defined in the policy."
        ),
    ),
    (
        "exactly one capability scope|validation failed|unsupported media",
        "request",
        "The service did not take the request's form; a proxy that rewrites bodies, or a version of the API not known here.",
    ),
    ("description had invalid|description is too long", "request", "The service refused the key's description."),
    (
        "is already taken|not unique",
        "conflict",
        "Another device has the name, or had it until a moment ago; names stay taken for a while after a device is gone.",
    ),
    (
        "outside of your tailnet",
        "external",
        "The device was shared in from another tailnet and belongs to that one; here the share can only be given up.",
    ),
)
_BY_STATUS: dict[int, tuple[str, str]] = {
    401: (
        "auth",
        "The service does not accept {caller}: mistyped, expired or revoked, it does not say which. Make a new credential.",
    ),
    402: ("plan", "The tailnet's plan does not include this."),
    403: ("scope", "{caller} lacks a right for this, probably the scope {scope}."),
    404: (
        "not_found",
        (
            "Check tailscale_api_url and tailscale_tailnet; an OAuth client made a moment ago may be unknown for a minute, and a "
            "missing scope ({scope}) can look like this too."
        ),
    ),
    429: ("rate", "Too many requests for this tailnet; run again in a minute."),
    501: ("unsupported", "The server does not offer this."),
    504: ("unavailable", "The service was too slow; run again, nothing is done twice."),
}


def explain(error: errors.ApiError, attempt: Attempt) -> errors.ApiError:
    """The same error with a cause (details: auth, tag, scope, plan, not_found, rate ...) and a remedy for a person."""
    cause, remedy = _meaning(error)
    if cause:
        error.details["cause"] = cause
        error.remedy = remedy.format(
            tags=attempt.tag_names(),
            caller=attempt.caller or "the credential",
            scope=attempt.scope or "of this call",
            policy=attempt.policy_line(),
        )
    return error


def _meaning(error: errors.ApiError) -> tuple[str, str]:
    if isinstance(error, (errors.Unreachable, errors.LostAnswer, errors.BadShape)):
        return "", ""
    for pattern, cause, remedy in _BY_WORDS:
        if re.search(pattern, error.message):
            return cause, remedy
    status = error.status or 0
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "unavailable", "The service is in trouble; run again later, nothing is done twice."
    return "", ""


def words(body: t.Any, text: str) -> tuple[str | None, str]:
    """The service's own sentence out of an error answer: ``message``, else OAuth's ``error_description``, ``error``, or plain text;
    the details that policy calls and headscale put under ``data`` are added."""
    if not isinstance(body, dict):
        plain = " ".join(re.sub(r"<[^>]*>", " ", text).split())
        return None, plain[:200]
    sentence = next((str(body[key]) for key in ("message", "error_description", "error", "detail", "title") if body.get(key)), "")
    code = body.get("error") if isinstance(body.get("error"), str) and body.get("error_description") else None
    parts = [sentence]
    for item in body.get("data") or ():
        if isinstance(item, dict):
            parts.extend(str(entry) for entry in item.get("errors") or ())
    return code, "; ".join(part for part in parts if part)
