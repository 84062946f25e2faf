# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cron schedules of five fields, read by the library cronsim, and whether one is in force now."""

from __future__ import annotations

import functools
import re
import typing as t
from datetime import datetime, timedelta, timezone, tzinfo

from ..core.errors import InvalidInput
from ..core.lazy_import import lazy

if t.TYPE_CHECKING:
    import cronsim
else:
    cronsim = lazy("cronsim")

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_TO_SUNDAY = re.compile(r"(?<![\w-])(?!(?:sun|0)-)(\w+)-(?:sun|0)(?!\w)", re.IGNORECASE)  # fri-sun, which cronsim reads as 5-0
_ANY_DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
_REMEDY = 'Write five fields like "0 9 * * 1-5": minute, hour, day of the month, month, day of the week.'


@functools.lru_cache(maxsize=256)
def parse_cron(text: str) -> str:
    """The five fields of a schedule, also of @daily and the like, as cronsim reads them. Raises InvalidInput, also for a day that no year
    has, and MissingLibrary without cronsim."""
    fields = _WORDS.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise InvalidInput(f"{text!r} is not a schedule.", remedy=_REMEDY)
    fields[4] = _TO_SUNDAY.sub(r"\1-7", fields[4])
    schedule = " ".join(fields)
    try:
        cronsim.CronSim(schedule, _ANY_DAY)
    except cronsim.CronSimError as error:
        raise InvalidInput(f"{text!r} is not a schedule: {str(error).lower()}.", remedy=_REMEDY) from error
    return schedule


def active(schedule: str, where: tzinfo, lasts: timedelta, now: datetime) -> bool:
    """Whether a schedule of :func:`parse_cron` came due less than ``lasts`` ago: its first moment is inside, its last is not.

    An hour that the clock skips counts at its end, one that it repeats counts once, and twice for schedules of every hour, as in Debian's
    cron. Of such an hour the library may name a moment before the one it begins at; that one is passed over.
    """
    since = now - lasts
    moments = (moment.astimezone(timezone.utc) for moment in cronsim.CronSim(schedule, since.astimezone(where)))
    following = next((moment for moment in moments if moment > since), None)
    return following is not None and following <= now
