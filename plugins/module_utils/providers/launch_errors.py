# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed create call means for the machine, said the same way for every cloud."""

from __future__ import annotations

import typing as t

from ..core import errors

PATIENCE = (5.0, 10.0, 20.0, 40.0, 60.0)  # pauses when a cloud takes no create calls now (429) and does not say how long
_LONGEST_PAUSE = 60.0


def judged(cloud: str, name: str, error: errors.ApiError, reason: str | None, *, remedy: str = "") -> errors.TgpError:
    """LaunchRefused for ``reason`` (an error class of L-14), LaunchUnknown when nobody can say why, and so whether it was made."""
    details: dict[str, t.Any] = {"cloud": cloud, "status": error.status, "code": error.code}
    if reason is None:
        return errors.LaunchUnknown(
            f"{error.message} Whether {name} was made is unknown.",
            remedy="It is looked up by name; do not launch it again before.",
            **details,
        )
    if isinstance(error, errors.RateLimited):
        details["retry_after"] = error.retry_after
    return errors.LaunchRefused(f"{name} was not made: {error.message}", reason=reason, remedy=remedy or error.remedy, **details)


def invalid(cloud: str, problem: str, remedy: str = "") -> errors.LaunchRefused:
    """The refusal of a request that the cloud would refuse anyway (or worse, would not)."""
    return errors.LaunchRefused(f"{cloud}: {problem}.", reason="invalid", remedy=remedy, cloud=cloud)


def patience(refusal: errors.LaunchRefused, usual: float) -> float:
    """Seconds to wait before the same create call may be sent again: what the cloud asks for within bounds, else ``usual``."""
    asked = refusal.details.get("retry_after")
    return usual if asked is None else min(max(asked, 1.0), _LONGEST_PAUSE)


def asks_for_patience(error: errors.ApiError) -> bool:
    """A cloud that takes no calls now (429), or was never reached, has certainly made nothing."""
    return isinstance(error, (errors.RateLimited, errors.Unreachable))
