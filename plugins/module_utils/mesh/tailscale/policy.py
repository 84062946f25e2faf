# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tailnet's policy lets our credential hand out the tags we want, as far as it can be seen without doing it."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.http import Answer
from . import hujson
from .policy_requirements import line_of_owners


class Reader(t.Protocol):
    """What is needed of the client."""

    @property
    def client_id(self) -> str: ...

    def caller(self) -> str: ...

    def read(self, path: str, *, scope: str, accept: str = ...) -> Answer: ...


def verdict(reader: Reader, tags: t.Sequence[str]) -> str:
    """A sentence. Raises Forbidden (details: cause tag) when the policy rules a tag out."""
    wanted = ", ".join(tags)
    owners = _owners(reader)
    if owners is None:
        return f"whether it may hand out {wanted} shows with the first key (the credential may not read the policy)"
    undefined = [tag for tag in tags if tag not in owners]
    if undefined:
        raise _refusal(f"the policy does not define {', '.join(undefined)}", reader, undefined)
    if not reader.client_id:
        return f"the policy defines {wanted}"
    own = own_tags(reader)
    if own is None:
        return f"the policy defines {wanted}; whether a tag of {reader.caller()} owns it shows with the first key"
    denied = [tag for tag in tags if tag not in own and not own & set(owners[tag])]
    if denied:
        raise _refusal(
            f"{reader.caller()} carries {', '.join(sorted(own)) or 'no tag'}, which does not own {', '.join(denied)}",
            reader,
            denied,
        )
    return f"it may hand out {wanted}"


def text(reader: Reader) -> str | None:
    """The policy (HuJSON), None when it may not be read."""
    try:
        return reader.read("/acl", scope="policy_file:read").text
    except (errors.Forbidden, errors.NotFound):
        return None


def _owners(reader: Reader) -> dict[str, list[str]] | None:
    """``tagOwners``, None when the policy may not be read."""
    try:
        policy = hujson.loads(text(reader) or "")
    except ValueError:
        return None
    owners = policy.get("tagOwners") if isinstance(policy, dict) else None
    if not isinstance(policy, dict) or not isinstance(owners, (dict, type(None))):
        return None
    return {str(tag): [str(owner) for owner in who or ()] for tag, who in (owners or {}).items()}


def own_tags(reader: Reader) -> set[str] | None:
    """The tags of the OAuth client itself; None when the credential may not see them."""
    try:
        answer = reader.read(f"/keys/{reader.client_id}", scope="oauth_keys:read")
    except (errors.Forbidden, errors.NotFound):
        return None
    tags = answer.json.get("tags") if isinstance(answer.json, dict) else None
    return {str(tag) for tag in tags} if isinstance(tags, list) else None


def _refusal(why: str, reader: Reader, tags: t.Sequence[str]) -> errors.Forbidden:
    return errors.Forbidden(
        f"tailscale: {why}, so no key with it can be made.",
        remedy=f"Write it into the policy, owned by a tag of {reader.caller()}, for example {line_of_owners(tags)}.",
        service="tailscale",
        cause="tag",
        tags=list(tags),
    )
