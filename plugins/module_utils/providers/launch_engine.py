# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches one machine: the only code that sends create calls, for the fleet and for the instance modules.

A create call costs money and is not idempotent, so the order of its steps is fixed here (L-2, L-14):

1. The call is recorded before it is sent, and so is each call that is sent again.
2. The id that the cloud answers is recorded before anything else happens.
3. A call that the cloud's rate limit refused has made nothing. The same call is sent again after a backoff.
4. Any other refusal is written down, with the id of a machine that it left behind. That machine is terminated, then the next offer is tried.
5. A call whose answer is lost is never sent again. Its machine is looked up by name for as long as the cloud's list may miss it.

What differs between callers are arguments: where launches are recorded, which machines are ours, how one is terminated.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone

from ..core.clock import Clock
from ..core.errors import ApiError, LaunchRefused, LaunchUnknown
from ..model import Capability, Instance, Offer

LOOK_UPS = 3  # at least, after a lost answer
LOOK_UP_INTERVAL = 10.0  # seconds
_BACKOFF = (5.0, 10.0, 20.0, 40.0, 60.0)  # seconds before a call is sent again, where the cloud does not say how long
_LONGEST_BACKOFF = 60.0
_NO_MORE_OFFERS = frozenset({"quota", "balance", "auth", "rate"})  # refusals that hold for every offer of the cloud
_NEVER = datetime.max.replace(tzinfo=timezone.utc)


class LaunchCandidate(t.NamedTuple):
    """An offer that may be rented. ``prepare`` makes a create call ready to be sent, each time that it is sent: the call is recorded when
    this returns it. The call returns the machine's id. None = the offer is not wanted any more."""

    offer: Offer
    prepare: t.Callable[[], t.Callable[[], str] | None]


class Journal(t.Protocol):
    """Where a launch is recorded; each write is complete when its method returns. What raises here ends the launch."""

    def created(self, offer: Offer, instance_id: str) -> None:
        """The cloud made the machine."""
        ...

    def refused(self, offer: Offer, refusal: LaunchRefused) -> None:
        """The cloud made none, or one that has to go: ``refusal.instance_id``."""
        ...

    def unknown(self, offer: Offer, unknown: LaunchUnknown) -> None:
        """The answer was lost: there may be a machine."""
        ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A machine exists: ``instance_id`` as the create call answered it, else ``found`` by name after a lost answer, the oldest first. The
    oldest stays; the others are its duplicates."""

    offer: Offer
    instance_id: str = ""
    found: tuple[Instance, ...] = ()


@dataclasses.dataclass(frozen=True)
class LaunchEngine:
    """``facts``: of each cloud, by its name. ``find``: our machines of the name that is launched, without those that refused calls left
    behind. ``give_back``: terminate what refused calls left behind; an error ends the launch. ``progress`` takes a step's word and a sentence.

    ``retry_unsent``: wait also for a cloud that a call did not reach. ``look_before_resend``: others may launch the same name."""

    facts: t.Mapping[str, Capability]
    journal: Journal
    find: t.Callable[[], t.Sequence[Instance]]
    give_back: t.Callable[[LaunchRefused], None]
    progress: t.Callable[[str, str], None]
    clock: Clock
    retry_unsent: bool = False
    look_before_resend: bool = False

    def launch(self, candidates: t.Iterable[LaunchCandidate]) -> Outcome:
        """Rent the first candidate that its cloud does not refuse. LaunchRefused when there is none: the last refusal. LaunchUnknown when a
        machine may exist and is not found: then nothing else is tried."""
        exhausted: set[str] = set()  # clouds
        last = LaunchRefused("No offer was tried.", reason="capacity")
        for candidate in candidates:
            offer = candidate.offer
            if offer.cloud in exhausted:
                continue
            try:
                instance_id = self._create(candidate)
            except LaunchRefused as refusal:
                last = refusal
                self.journal.refused(offer, refusal)
                self.progress("refused", f"{offer.cloud} {offer.id}: {refusal.reason}: {refusal.message}")
                self.give_back(refusal)
                if refusal.reason == "invalid":
                    break
                if refusal.reason in _NO_MORE_OFFERS:
                    exhausted.add(offer.cloud)
            except LaunchUnknown as unknown:
                self.journal.unknown(offer, unknown)
                self.progress("unknown", f"{unknown.message} Looking for it by name.")
                machines = self.look_up(offer.cloud)
                if not machines:
                    raise
                return Outcome(offer, found=tuple(machines))
            else:
                if instance_id:
                    return Outcome(offer, instance_id)
        raise last

    def _create(self, candidate: LaunchCandidate) -> str:
        """The id of the machine that was made; empty when the candidate is not wanted any more."""
        cloud, backoff = candidate.offer.cloud, iter(_BACKOFF)
        while True:
            create = candidate.prepare()
            if create is None:
                return ""
            try:
                instance_id = create()
                if not instance_id:  # a machine may exist, so no second call
                    raise LaunchUnknown(f"{cloud} took the create call and named no machine.", cloud=cloud)
            except LaunchRefused as refusal:
                usual = next(backoff, None)
                if usual is None or not self._may_resend(refusal):
                    raise
                self._back_off(cloud, refusal, usual)
                instance_id = self._made_meanwhile() if self.look_before_resend else ""
            if instance_id:
                self.journal.created(candidate.offer, instance_id)
                return instance_id

    def _may_resend(self, refusal: LaunchRefused) -> bool:
        if refusal.reason != "rate" or refusal.instance_id:
            return False
        return self.retry_unsent or refusal.details.get("status") == 429

    def _back_off(self, cloud: str, refusal: LaunchRefused, usual: float) -> None:
        """Sleep for as long as the cloud asks for, within bounds, else ``usual`` seconds."""
        asked = refusal.details.get("retry_after")
        seconds = usual if asked is None else min(max(asked, 1.0), _LONGEST_BACKOFF)
        problem = "is rate limited" if refusal.details.get("status") == 429 else "takes no calls now"
        self.progress("waiting", f"{cloud} {problem}, retrying in {seconds:.0f} s")
        self.clock.sleep(seconds)

    def _made_meanwhile(self) -> str:
        """The id of our machine of the name. A list that cannot be read says nothing: the answer to the call was that nothing was made."""
        try:
            return next((instance.id for instance in oldest_first(self.find())), "")
        except ApiError as error:
            self.progress("unknown", f"look-up failed: {error}")
            return ""

    def look_up(self, cloud: str, find: t.Callable[[], t.Sequence[Instance]] | None = None) -> list[Instance]:
        """Our machines of the name (or what ``find`` finds), the oldest first: looked for LOOK_UPS times, and for as long as the cloud may
        list them late. A list that fails is a look that found nothing."""
        looks, until = 0, self.clock.now() + timedelta(seconds=self.facts[cloud].list_delay)
        while looks < LOOK_UPS or self.clock.now() < until:
            if looks:
                self.clock.sleep(LOOK_UP_INTERVAL)
            looks += 1
            try:
                machines = (find or self.find)()
            except ApiError as error:
                self.progress("unknown", f"look-up failed: {error}")
                continue
            if machines:
                return oldest_first(machines)
        return []


def oldest_first(machines: t.Iterable[Instance]) -> list[Instance]:
    """Of machines of one name the first stays. One whose age is unknown comes last."""
    return sorted(machines, key=lambda instance: (instance.created or _NEVER, instance.id))
