# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-12: our list of bootstrap tokens, and how often it is read and written."""

from __future__ import annotations

import copy
import math
import threading
import types
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ServerError
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens
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


class Time:
    """``now`` is what the clock of the list shows."""

    now = NOON


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def tokens(store: Store, time: Time, warnings: list[str]) -> TokenList:
    clock = types.SimpleNamespace(now=lambda: time.now)
    return TokenList(store, clock, warnings.append)  # type: ignore[arg-type]


def machines(store: Store) -> list[str]:
    """Those that have tokens on the list as it is stored."""
    return sorted(entry["machine"] for entry in store.state.values())


def draw_behind(store: Store, tokens: TokenList, first: str, others: t.Sequence[str]) -> list[BaseException]:
    """The token of ``first`` is being noted when the others come; the errors of all."""
    errors: list[BaseException] = []

    def draw(machine: str) -> None:
        try:
            tokens.draw(machine)
        except ServerError as error:
            errors.append(error)

    gate = store.gate = threading.Event()
    threads = [threading.Thread(target=draw, args=(one,)) for one in (first, *others)]
    threads[0].start()
    assert store.arrived.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(tokens._noting) < len(others):
        threading.Event().wait(0.01)
    gate.set()
    for thread in threads:
        thread.join(60)
    return errors


def test_L12_tokens_that_are_drawn_at_the_same_time_share_one_writing(store: Store, tokens: TokenList) -> None:
    names = [f"tgp-{number:02}" for number in range(20)]
    assert draw_behind(store, tokens, names[0], names[1:]) == []
    assert machines(store) == names
    assert (store.reads, store.writes) == (1, 2), "under the run lock nobody else writes it"


def test_L12_tokens_are_noted_ahead_for_the_machines_that_are_launched_next(store: Store, tokens: TokenList) -> None:
    """At a cloud where launches are paced, each would cost a write else."""
    names = [f"tgp-{number:03}" for number in range(100)]
    tokens.expect(names)
    made = []
    for name in names:
        drawn = tokens.draw(name)
        assert store.state[drawn.id]["machine"] == name == drawn.node and drawn.secret, "it is noted before it is made"
        made.append(drawn.id)
    assert sorted(store.state) == sorted(made) and store.writes == math.ceil(100 / 17)


def test_L12_a_token_drawn_ahead_is_not_taken_for_one_of_an_earlier_run(store: Store, tokens: TokenList) -> None:
    earlier = tokens.draw("tgp-1").id
    tokens.expect(["tgp-0", "tgp-1"])
    tokens.draw("tgp-0")
    assert len(store.state) == 3 and tokens.made_for("tgp-1") == [earlier]
    own = tokens.draw("tgp-1").id
    assert sorted(tokens.made_for("tgp-1")) == sorted([earlier, own])


def test_L12_a_token_that_waited_too_long_for_its_machine_is_drawn_anew(store: Store, time: Time, tokens: TokenList) -> None:
    """It is to live through the boot of its machine."""
    tokens.expect(["tgp-0", "tgp-1", "tgp-2"])
    tokens.draw("tgp-0")
    time.now = NOON + timedelta(minutes=5)
    assert tokens.draw("tgp-1").expires == NOON + timedelta(hours=1)
    time.now += timedelta(seconds=1)
    assert tokens.draw("tgp-2").expires == time.now + timedelta(hours=1)
    assert machines(store) == ["tgp-0", "tgp-1", "tgp-2"], "the one that was not used is off the list"


def test_L12_what_was_drawn_for_machines_that_are_not_launched_is_taken_off_in_the_end(store: Store, tokens: TokenList) -> None:
    tokens.expect(["tgp-0", "tgp-1", "tgp-2"])
    tokens.draw("tgp-0")
    assert machines(store) == ["tgp-0", "tgp-1", "tgp-2"]
    tokens.settle()
    assert machines(store) == ["tgp-0"]


def test_L12_each_learns_that_the_writing_for_it_failed(store: Store, tokens: TokenList) -> None:
    """Else it would make a token that nobody finds."""
    tokens.expect(["tgp-0", "tgp-1", "tgp-2", "tgp-3"])
    store.broken = True
    assert len(draw_behind(store, tokens, "tgp-8", ["tgp-9"])) == 2
    with pytest.raises(ServerError):
        tokens.draw("tgp-0")
    store.broken = False
    tokens.draw("tgp-1")
    assert machines(store) == ["tgp-1"]


def test_L12_what_is_taken_off_is_written_with_the_next_note_or_when_the_step_ends(store: Store, tokens: TokenList) -> None:
    ids = [tokens.draw(f"tgp-{number}").id for number in range(3)]
    tokens.forget(ids[0])
    assert sorted(one.id for one in tokens.listed()) == sorted(ids[1:]) and len(store.state) == 3
    last = tokens.draw("tgp-3").id
    assert sorted(store.state) == sorted([*ids[1:], last])
    tokens.forget(ids[1])
    tokens.forget(ids[2])
    written = store.writes
    tokens.settle()
    tokens.settle()
    assert (list(store.state), store.writes) == ([last], written + 1)


def test_L12_an_id_that_is_drawn_again_is_on_the_list_again(
    store: Store, tokens: TokenList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_tokens.secrets, "choice", lambda letters: letters[0])
    identity = tokens.draw("tgp-0").id
    tokens.forget(identity)
    assert tokens.draw("tgp-0").id == identity
    tokens.settle()
    assert list(store.state) == [identity]


def test_L12_a_list_that_cannot_be_settled_stays_and_is_told(store: Store, tokens: TokenList, warnings: list[str]) -> None:
    identity = tokens.draw("tgp-0").id
    tokens.forget(identity)
    store.broken = True
    tokens.settle()
    assert "could not be taken off" in warnings[0] and list(store.state) == [identity]
