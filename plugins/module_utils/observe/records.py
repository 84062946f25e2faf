# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims as they were last read or written, and the small records beside them: generations, block list, first sightings, books, tokens."""

from __future__ import annotations

import threading
import typing as t
import uuid
from datetime import datetime, timedelta

from ..core.clock import Clock, from_text, to_text
from ..core.errors import ApiError, BadShape, InvalidInput, TgpError
from ..kube import bootstrap_tokens
from ..kube.bootstrap_tokens import Token
from ..model import Claim, HandedOut, Instance, Ledger, MadeToken, Pause
from ..planner import pauses
from ..planner.cost.cost import read_ledger
from ..planner.garbage_collection.ownership import (
    RELEASED,
    Owner,
    Ownership,
    Store,
    claimed,
    generations_of,
    ids_of,
    owner_of,
    read_released,
    remembered,
    written_released,
)
from ..planner.offers import launch_backoff
from ..providers.registry import CAPABILITIES
from ..store.records import ClaimStore
from .clients import Once

TOKENS = "tokens"
_AHEAD = 16  # tokens that are noted with that of a machine, for those that are launched after it
_LEAST_LIFE = timedelta(minutes=55)  # of a token that is about to be made: it is to outlive the boot and the join of its machine


class Records:
    """What one module call reads and writes beside the claims themselves.

    ``money`` is held by whoever checks limits and reserves, or reads one of these records and writes it changed: one at a time.
    """

    def __init__(self, store: ClaimStore, clock: Clock, cluster_id: str, warn: t.Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._cluster_id = cluster_id
        self._warn = warn
        self.money = threading.RLock()
        self.tokens = TokenList(store, clock, warn)
        self._once = Once()
        self._written: dict[str, Claim] = {}
        self._blocks: dict[str, t.Any] | None = None  # as last read or written

    # ---- claims

    def remember(self, claim: Claim) -> None:
        """Keep the record as last written, with the facts that are not written yet, so that a later failure reports the truth."""
        self._written[claim.name] = claim
        self._once.forget("claimed")

    def forget(self, claim: Claim) -> None:
        self._written.pop(claim.name, None)
        self._once.forget("claimed")

    def current(self, claim: Claim) -> Claim:
        return self._written.get(claim.name, claim)

    def known_claims(self) -> list[Claim]:
        """The claims as this call first read them, with what was written since."""
        first = self._once("claims", self._store.claims)
        return list({**{claim.name: claim for claim in first}, **self._written}.values())

    def refresh(self) -> None:
        """Read claims, what was handed out, and tokens anew at their next use."""
        self._once.forget("claims", "claimed", "released", "released ids")
        self.tokens.refresh()

    # ---- states

    def read_times(self, name: str) -> dict[str, datetime]:
        """A stored map of moments (first sightings). BadShape when one of them is none."""
        times: dict[str, datetime] = {}
        for key, text in self._store.read_state(name).items():
            try:
                times[key] = from_text(str(text))
            except ValueError:
                raise BadShape(
                    f"The record tgp-state-{name} beside the claims is not understood at {key!r}: {text!r} is not a time.",
                    remedy="Remove that record while no run is active; what it holds then counts as seen for the first time.",
                    service="claims",
                    record=name,
                ) from None
        return times

    def write_times(self, name: str, times: t.Mapping[str, datetime]) -> None:
        self._store.write_state(name, {key: to_text(moment) for key, moment in times.items()})

    def generations(self) -> tuple[str, ...]:
        """The generations of this record store, the current one first; empty until a run that writes has drawn one (L-1a). Of a damaged
        record the claims stand in; where they know none either nobody can say whose a machine is, so that raises BadShape."""
        try:
            return generations_of(self._store.read_state("generation"))
        except (InvalidInput, BadShape) as error:
            if isinstance(error, BadShape) and error.service != "claims":
                raise  # the answer is odd, not the record
            if generation := remembered(self.known_claims()):
                self._warn(
                    f"The record tgp-state-generation is damaged; the claims say generation {generation}. Delete the record: it is made anew."
                )
                return (generation,)
            raise BadShape(
                f"The record tgp-state-generation beside the claims is not understood: {error.message}",
                remedy="Delete it and run adopt.yml with the generation that your machines are stamped with.",
                service="claims",
                record="generation",
            ) from error

    def draw_generation(self) -> str:
        """The generation of this record store. Drawn and written once; one whose record was removed is found again in the claims."""
        generations = self.generations()
        if generations:
            return generations[0]
        drawn = remembered(self.known_claims()) or str(uuid.uuid4())
        self._store.write_state("generation", {"generation": drawn, "drawn": to_text(self._clock.now())})
        return drawn

    def owner(self, instance: Instance) -> Owner:
        """Whose a machine is, by the records as they are now."""
        generations = self._once("generations", self.generations)
        known = self._once("claimed", lambda: claimed(self.known_claims()))
        store = Store(self._cluster_id, generations, known, self._once("released ids", lambda: ids_of(self.released())))
        return owner_of(instance, CAPABILITIES.get(instance.cloud), store)

    def is_ours(self, instance: Instance) -> bool:
        return self.owner(instance).ownership is Ownership.OURS

    def released(self) -> tuple[HandedOut, ...]:
        """The machines that were handed out (L-48), read once. BadShape when their record is not understood, ApiError when it cannot be
        read: then nobody can say whose a machine is."""
        read: tuple[HandedOut, ...] = self._once("released", lambda: read_released(self._store.read_state(RELEASED)))
        return read

    def write_released(self, released: t.Iterable[HandedOut]) -> None:
        self._store.write_state(RELEASED, written_released(released))
        self._once.forget("released", "released ids")

    def pauses(self) -> tuple[Pause, ...]:
        """What is paused by the record (L-31), read now. BadShape when it is not understood, ApiError when it cannot be read."""
        return pauses.read(self._store.read_state(pauses.STATE))

    def pauses_or_all(self) -> tuple[Pause, ...]:
        """The same; while that cannot be read everything counts as paused, with a warning."""
        try:
            return self.pauses()
        except ApiError as error:
            self._warn(f"What is paused is unknown, so nothing is launched or terminated: {error}")
            return (pauses.UNREAD,)

    def write_pauses(self, paused: t.Iterable[Pause]) -> None:
        self._store.write_state(pauses.STATE, pauses.written(paused))

    def blocks(self) -> dict[str, t.Any]:
        """The stored block list (L-14), read now."""
        self._blocks = self._store.read_state("blocklist")
        return self._blocks

    def known_blocks(self) -> dict[str, t.Any]:
        """The same as last read or written in this run."""
        return self.blocks() if self._blocks is None else self._blocks

    def block(self, key: str, reason: str, *, why: str = "", claim: str = "") -> None:
        """Remember that an offer failed, so that it is not tried again at once; ``why`` in words, and with which machine."""
        with self.money:
            self._write_blocks(launch_backoff.after_failure(self.blocks(), key, reason, self._clock.now(), why=why, claim=claim))

    def failed_join(self, pool: str) -> None:
        """Count a machine that never joined; too many pause the pool (L-11)."""
        with self.money:
            self._write_blocks(launch_backoff.after_failed_join(self.blocks(), pool, self._clock.now()))

    def succeeded(self, key: str) -> None:
        """An offer was rented: the doubling of its blocks ends (L-14). The list is read once for all successes: nobody else writes it under
        the run lock."""
        with self.money:
            blocks = self.known_blocks()
            if key in blocks or key in blocks.get(launch_backoff.HISTORY, {}):
                self._write_blocks(launch_backoff.after_success(self.blocks(), key))

    def _write_blocks(self, blocks: dict[str, t.Any]) -> None:
        self._store.write_state("blocklist", blocks)
        self._blocks = blocks

    def ledger(self) -> Ledger:
        """The books, read now. ApiError when their place cannot be read; torn lines are named in it."""
        lines, torn = self._store.ledger_records()
        return read_ledger(lines, [line.place for line in torn])


class TokenList:
    """Our list of the bootstrap tokens that we made, beside the claims (L-12).

    A token whose id never reached its claim, or whose claim was deleted, can be found only if it is known otherwise. To ask the cluster
    would take the right to list the Secrets of kube-system, which are worth more than any token. So each is noted here before it is made,
    and taken off after it is deleted; ids are no secret. One whose hour is over is gone, and is left out at the next writing.

    Threads that note tokens at the same time share one reading and one writing. A cloud at which launches are paced would still cost a write
    for each machine, so a token is noted together with those of the machines that follow it (:meth:`expect`). What is taken off is written
    with the next note, or by :meth:`settle`: a run that is killed before leaves entries without a token, which a later run sees.
    """

    def __init__(self, store: ClaimStore, clock: Clock, warn: t.Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._warn = warn
        self._writing = threading.Lock()  # from reading the list to writing it changed
        self._stored: tuple[MadeToken, ...] | None = None  # as read or written last
        self._guard = threading.Lock()  # of all that follow
        self._noting: list[_Note] = []
        self._forgotten: set[str] = set()
        self._expected: list[str] = []  # machines whose tokens are not drawn yet, in the order of their launch
        self._drawn: dict[str, _Note] = {}  # by machine: drawn, and not taken yet

    def listed(self) -> tuple[MadeToken, ...]:
        """Those that may still be good, read now, in the order of their ids. BadShape when the list is not understood, ApiError when it cannot
        be read: both mean unknown, never that there are none."""
        return self._still_good(_token(identity, raw) for identity, raw in sorted(self._store.read_state(TOKENS).items()))

    def _still_good(self, tokens: t.Iterable[MadeToken]) -> tuple[MadeToken, ...]:
        now = self._clock.now()
        with self._guard:
            return tuple(token for token in tokens if token.expires > now and token.id not in self._forgotten)

    def _as_stored(self) -> tuple[MadeToken, ...]:
        """The list as we wrote it last, else read, once: under the run lock nobody else writes it. Its caller holds ``_writing``."""
        if self._stored is None:
            self._stored = self.listed()
        return self._still_good(self._stored)

    def expect(self, machines: t.Iterable[str]) -> None:
        """These will want a token, in this order."""
        with self._guard:
            self._expected += machines

    def draw(self, machine: str) -> Token:
        """A fresh token for it, which stands on the list and is yet to be made. Raises like :meth:`listed`."""
        now = self._clock.now()
        with self._guard:
            own = self._drawn.pop(machine, None)
            if own is None or own.error is not None or own.token.expires - now < _LEAST_LIFE:
                if own is not None:
                    self._forgotten.add(own.token.id)
                own = self._note_with_next(machine, now)
        with self._writing:
            if not own.settled:
                self._write_notes()
        if own.error is not None:
            raise own.error
        return own.drawn

    def _note_with_next(self, machine: str, now: datetime) -> _Note:
        """Its note, and those of the machines that follow it: they wait for the next write. Its caller holds ``_guard``."""
        place = self._expected.index(machine) + 1 if machine in self._expected else 0
        following = self._expected[place : place + _AHEAD] if place else []
        self._expected = [name for name in self._expected if name != machine and name not in following]
        own = _Note(bootstrap_tokens.draw(machine, now=now))
        self._drawn |= {name: _Note(bootstrap_tokens.draw(name, now=now)) for name in following}
        waiting = [own, *(self._drawn[name] for name in following)]
        self._noting += waiting
        self._forgotten -= {note.token.id for note in waiting}
        return own

    def _write_notes(self) -> None:
        """All that wait, in one write; each learns of a failure."""
        with self._guard:
            notes, self._noting = self._noting, []
            forgotten = set(self._forgotten)
        try:
            kept = {token.id: token for token in self._as_stored()}
            self._write({**kept, **{note.token.id: note.token for note in notes}})
        except BaseException as error:
            for note in notes:
                note.error = error
            raise
        finally:
            for note in notes:
                note.settled = True
        with self._guard:
            self._forgotten -= forgotten

    def forget(self, token_id: str) -> None:
        """Take one off that was deleted."""
        with self._guard:
            self._forgotten.add(token_id)

    def settle(self) -> None:
        """Write what was taken off, while the run lock is held, and what was drawn for machines that were not launched after all. If that
        fails, entries stay whose tokens are gone: a later run sees that."""
        with self._writing:
            with self._guard:
                self._forgotten |= {note.token.id for note in self._drawn.values()}
                self._drawn.clear()
                forgotten = set(self._forgotten)
            if not forgotten:
                return
            try:
                self._write({token.id: token for token in self._as_stored()})
            except TgpError as error:
                self._warn(f"Deleted bootstrap tokens could not be taken off our list of tokens: {error}")
            with self._guard:
                self._forgotten -= forgotten

    def refresh(self) -> None:
        """Read the list anew when it is needed next."""
        with self._writing:
            self._stored = None

    def made_for(self, machine: str) -> list[str]:
        """Ids of its tokens: those that earlier runs noted, and those made here. The list is read once, however many ask: under the run lock
        nobody else notes any. When it cannot be read there is a warning, and tokens of earlier runs stay until they expire."""
        with self._writing:
            try:
                tokens = self._as_stored()
            except TgpError as error:
                self._warn(f"Our list of bootstrap tokens could not be read, so lost ones stay until they expire: {error}")
                return []
        with self._guard:
            drawn = self._drawn.get(machine)
        return [token.id for token in tokens if token.machine == machine and (drawn is None or token.id != drawn.token.id)]

    def _write(self, tokens: t.Mapping[str, MadeToken]) -> None:
        state = {token.id: {"machine": token.machine, "expires": to_text(token.expires)} for token in tokens.values()}
        self._stored = None  # until the answer is there
        self._store.write_state(TOKENS, state)
        self._stored = tuple(tokens.values())


class _Note:
    """One drawn token that waits for its place on the list."""

    def __init__(self, drawn: Token) -> None:
        self.drawn = drawn
        self.token = MadeToken(drawn.id, drawn.node, t.cast(datetime, drawn.expires))
        self.settled = False
        self.error: BaseException | None = None


def _token(identity: str, raw: t.Any) -> MadeToken:
    machine = raw.get("machine") if isinstance(raw, dict) else None
    if not (isinstance(machine, str) and machine and len(identity) == 6 and identity.isascii() and identity.isalnum()):
        raise _odd(identity)
    return MadeToken(identity, machine, _moment(identity, raw.get("expires")))


def _moment(identity: str, text: t.Any) -> datetime:
    try:
        return from_text(str(text))
    except ValueError:
        raise _odd(identity) from None


def _odd(identity: str) -> BadShape:
    return BadShape(
        f"The list of the bootstrap tokens that we made (tgp-state-{TOKENS}) is not understood at {identity!r}.",
        remedy="Remove that record while no run is active. Tokens without a claim then stay until they expire, after an hour.",
        service="claims",
        record=TOKENS,
    )
