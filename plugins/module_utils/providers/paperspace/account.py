# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a Paperspace team may rent: session, standing, number of machines."""

from __future__ import annotations

import typing as t

from ...core import errors
from ..base import CloudCheck
from .api import Calls


def look_at_account(calls: Calls, count_machines: t.Callable[[], int]) -> CloudCheck:
    """Raises Unauthorized also for a session of ``null``, which is how a wrong key may be answered; InvalidInput when nothing can be
    created."""
    answer = calls.send("GET", "/auth/session")
    session = answer.json
    team = session.get("team") if isinstance(session, dict) else None
    if answer.text.strip() == "null" or (isinstance(session, dict) and not (isinstance(team, dict) and team.get("namespace"))):
        raise errors.Unauthorized(
            "paperspace: the API key is not accepted (there is no session for it).",
            remedy="Check PAPERSPACE_API_KEY (or the option paperspace_api_key); keys are made in the Paperspace console.",
            service="paperspace",
        )
    team = calls.api.expect(team, dict, "GET /auth/session", "team")
    warnings = _standing(calls)
    count, most = count_machines(), team.get("maxMachines")
    if isinstance(most, int) and count >= most:
        warnings.append(f"paperspace: the team may have {most} machines and has {count}: every launch will be refused.")
    machines = f"{count} machine{'' if count == 1 else 's'}" + (f" of at most {most}" if isinstance(most, int) else "")
    return CloudCheck(f"paperspace: the API key is accepted; team {team['namespace']} has {machines}.", tuple(warnings))


def _standing(calls: Calls) -> list[str]:
    """Whether the team may create; the call is not there everywhere."""
    try:
        standing = calls.get("/billing/account-standing")
    except errors.NotFound:
        return []
    listed = standing.get("messages")
    said = "; ".join(str(one) for one in listed) if isinstance(listed, list) else ""
    if standing.get("isAdminLocked") or standing.get("isInGoodStanding") is False:
        raise errors.InvalidInput(
            f"paperspace: the account may create nothing: {said or 'it is locked or not in good standing'}.",
            remedy="See Billing in the Paperspace console.",
        )
    if standing.get("hasPaymentMethod") is False:
        return [f"paperspace: the account has no payment method; launches will be refused. {said}".strip()]
    return []
