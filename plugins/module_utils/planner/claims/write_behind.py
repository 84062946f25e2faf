# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When facts of a machine that joins must be written to its claim (L-2): most of them wait for its next write."""

from __future__ import annotations

from datetime import datetime, timedelta

from ...model import Claim

#: Seconds for which a step may stay unwritten. A ``status`` in another terminal shows it at most so much late, and a run that is killed
#: loses no more, all of which the next run observes again. Most machines are usable before, so their steps cost no write of their own.
MOST_UNWRITTEN = 120.0


def write_due(written: Claim, noted: Claim, since: datetime) -> datetime:
    """When a claim that is stored as ``written`` must be stored as ``noted``. ``since``: when the first unwritten fact was observed.

    What the bill hangs on is due at once: when the next run looks, the machine may be gone, or may have stopped to run. Facts beside it, such
    as an address, change nothing for other readers, who see them at the cloud or the mesh: they wait for the next step of the machine, however
    long it boots.
    """
    if _bill(written) != _bill(noted):
        return since
    if written.phase is noted.phase:
        return datetime.max.replace(tzinfo=since.tzinfo)
    return max(since, noted.phase_since) + timedelta(seconds=MOST_UNWRITTEN)


def _bill(claim: Claim) -> tuple[object, ...]:
    return claim.price, claim.running_since, claim.interrupted_at
