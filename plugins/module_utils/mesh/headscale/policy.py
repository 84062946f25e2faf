# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What headscale's policy says of tags. It hands out any tag, so an unknown one is only pointed out."""

from __future__ import annotations

import typing as t

from ..tailscale import hujson


def verdict(policy: str | None, tags: t.Sequence[str]) -> str:
    """The end of a sentence for people."""
    wanted = ", ".join(tags)
    if policy is None:
        return f"it has no policy to be seen, so every device reaches every other and {wanted} needs no rule"
    try:
        content = hujson.loads(policy)
    except ValueError as error:
        return f"its policy cannot be read ({error}), whether it knows {wanted} is not sure"
    owners = content.get("tagOwners") if isinstance(content, dict) else None
    undefined = [tag for tag in tags if tag not in (owners or {})]
    if undefined:
        return (
            f"it hands out any tag, but its policy does not define {', '.join(undefined)}, so no rule can let such a machine reach "
            'anything unless one is for "*": write it into tagOwners'
        )
    return f"its policy defines {wanted}"
