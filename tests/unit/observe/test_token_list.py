# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-12: our list of bootstrap tokens, and how often it is read and written."""

from __future__ import annotations

import copy
import threading
import types
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ServerError
from ansible_collections.tgp.gpu.plugins.module_utils.model import MadeToken
from ansible_collections.tgp.gpu.plugins.module_utils.observe.records import TokenList

NOON = datetime(2026, 8, 21, 12, tzinfo=timezone.utc)


class Store:
    """One record. ``gate``, once set, holds up the next writing until it is opened; ``broken`` makes writings fail."""

    def __init__(self) -> None:
        self.state: dict[str, t.Any] = {}
        self.reads = self.writes = 0
        self.gate: threading.Event | None = None
        self.arrived = threading.Event()
        self.broken = False

    def read_state(self, _name: str) -> dict[str, t.Any]:
        self.reads += 1
        return copy.deepcopy(self.state)

    def write_state(self, _name: str, state: t.Mapping[str, t.Any]) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            self.arrived.set()
            gate.wait(60)
        if self.broken:
            raise ServerError("the record cannot be written")
        self.writes += 1
        self.state = copy.deepcopy(dict(state))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def tokens(store: Store, warnings: list[str]) -> TokenList:
    clock = types.SimpleNamespace(now=lambda: NOON)
    return TokenList(store, clock, warnings.append)  # type: ignore[arg-type]


def token(number: int) -> MadeToken:
    return MadeToken(f"tok{number:03}", f"tgp-{number}", NOON + timedelta(hours=1))


def note_behind(store: Store, tokens: TokenList, first: MadeToken, others: t.Sequence[MadeToken]) -> list[BaseException]:
    """``first`` is being written when the others come; the errors of all."""
    errors: list[BaseException] = []

    def note(one: MadeToken) -> None:
        try:
            tokens.note(one)
        except ServerError as error:
            errors.append(error)

    gate = store.gate = threading.Event()
    threads = [threading.Thread(target=note, args=(one,)) for one in (first, *others)]
    threads[0].start()
    assert store.arrived.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(tokens._noting) < len(others):
        threading.Event().wait(0.01)
    gate.set()
    for thread in threads:
        thread.join(10)
    return errors


def test_L12_tokens_that_are_noted_at_the_same_time_share_one_writing(store: Store, tokens: TokenList) -> None:
    assert note_behind(store, tokens, token(0), [token(number) for number in range(1, 20)]) == []
    assert sorted(store.state) == [f"tok{number:03}" for number in range(20)]
    assert (store.reads, store.writes) == (1, 2), "under the run lock nobody else writes it"


def test_L12_each_learns_that_the_writing_for_it_failed(store: Store, tokens: TokenList) -> None:
    """Else it would make a token that nobody finds."""
    store.broken = True
    assert len(note_behind(store, tokens, token(0), [token(1), token(2)])) == 3
    store.broken = False
    tokens.note(token(3))
    assert list(store.state) == ["tok003"]


def test_L12_what_is_taken_off_is_written_with_the_next_note_or_when_the_step_ends(store: Store, tokens: TokenList) -> None:
    for number in range(3):
        tokens.note(token(number))
    tokens.forget("tok000")
    assert [one.id for one in tokens.listed()] == ["tok001", "tok002"] and len(store.state) == 3
    tokens.note(token(3))
    assert list(store.state) == ["tok001", "tok002", "tok003"]
    tokens.forget("tok001")
    tokens.forget("tok002")
    written = store.writes
    tokens.settle()
    tokens.settle()
    assert (list(store.state), store.writes) == (["tok003"], written + 1)


def test_L12_a_token_that_is_drawn_again_is_on_the_list_again(store: Store, tokens: TokenList) -> None:
    tokens.note(token(0))
    tokens.forget("tok000")
    tokens.note(token(0))
    tokens.settle()
    assert list(store.state) == ["tok000"]


def test_L12_a_list_that_cannot_be_settled_stays_and_is_told(store: Store, tokens: TokenList, warnings: list[str]) -> None:
    tokens.note(token(0))
    tokens.forget("tok000")
    store.broken = True
    tokens.settle()
    assert "could not be taken off" in warnings[0] and list(store.state) == ["tok000"]
