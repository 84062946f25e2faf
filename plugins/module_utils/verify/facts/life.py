# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that only the course of a rented machine shows, the same for each cloud: how late a list shows it, which words its states have, what it
costs, and how it ends."""

from __future__ import annotations

import typing as t

from ...model import Capability
from ...planner.offers.ranking import PRICE_TOLERANCE
from .fact import LIFE, Basis, Fact, Group, Replies, Verdict, life_of, not_seen, verdict

LISTED, MACHINE, GONE = "rented_list", "rented_machine", "rented_gone"
_DEARER = float(1 + PRICE_TOLERANCE)  # the price really paid may be that much above the offer's
_ENDS_WITHIN = 300.0


def life_facts(group: Group, cloud: Capability, *, gone: t.Callable[[Replies], Verdict], gone_expected: str) -> t.Iterator[Fact]:
    """``cloud``: its list's delay, and the states of the client's table. ``gone``: how the look by the id after the end is to be answered."""
    list_delay, states = cloud.list_delay, cloud.states
    yield group.fact(
        "life.listed",
        f"A new machine is in the list within {list_delay} s",
        f"at most {list_delay} s",
        (LIFE,),
        lambda replies: _listed(replies, list_delay),
        basis=Basis.UNVERIFIED,
        why="A second run of the same name could rent a second machine, or an orphan would be declared gone too early.",
    )
    yield group.fact(
        "life.states",
        "Every state of a machine has a word that is known",
        f"one of {', '.join(sorted(states))}",
        (LIFE,),
        lambda replies: _states(replies, states),
        why="A state that is unknown counts as not ready and not gone, so a machine may be billed until its deadline.",
    )
    yield group.fact(
        "life.price",
        "The machine costs what its offer said, or at most 5 % more",
        f"at most {_DEARER:.2f} times the offer",
        (LIFE,),
        _price,
        basis=Basis.UNVERIFIED,
        why="Limits and budgets are checked against the offer: more is spent than allowed.",
    )
    yield group.fact(
        "life.up",
        "The machine runs and has an address before the registration timeout",
        "running with an address",
        (LIFE,),
        _up,
        basis=Basis.UNVERIFIED,
        why="The machine is terminated as a failed join while it still boots.",
    )
    yield group.fact(
        "life.end",
        f"After a terminate call the machine ends within {_ENDS_WITHIN:.0f} s",
        f"at most {_ENDS_WITHIN:.0f} s",
        (LIFE,),
        _end,
        basis=Basis.UNVERIFIED,
        why="Termination is retried, and the machine is reported as left behind although it ends.",
    )
    yield group.fact(
        "gone.look",
        "A look by the id after the end says that the machine is gone",
        gone_expected,
        (GONE,),
        gone,
        why="A machine that is gone is taken for one that exists, and its claim never ends.",
    )


def _listed(replies: Replies, most: int) -> Verdict:
    """By the last look that missed it: looks are some seconds apart, so the first that shows it may come later than it was shown."""
    life = life_of(replies)
    missed, shown = life.get("unlisted_for") or 0.0, life.get("listed_after")
    if shown is None:
        return verdict(False, f"missing after {missed:.0f} s") if missed > most else not_seen("the list never showed it")
    return verdict(missed <= most, f"between {missed:.0f} and {shown:.0f} s")


def _states(replies: Replies, states: t.Collection[str]) -> Verdict:
    words = life_of(replies).get("states") or []
    if not words:
        return not_seen("no state was seen")
    unknown = [word for word in words if word not in states]
    return verdict(not unknown, " then ".join(words) if not unknown else f"unknown: {', '.join(unknown)}")


def _price(replies: Replies) -> Verdict:
    ratio = life_of(replies).get("price_ratio")
    return not_seen("the machine has no price") if ratio is None else verdict(ratio <= _DEARER, f"{ratio:.3f} times the offer")


def _up(replies: Replies) -> Verdict:
    life = life_of(replies)
    if life.get("running_after") is not None:
        return verdict(True, f"after {life['running_after']:.0f} s")
    if life.get("stopped_for") == "cost":
        return not_seen("the cost cap ended the watch before")
    if life.get("stopped_for") == "failed":
        return verdict(False, f"the provider ended it after {life.get('watched', 0):.0f} s")
    return verdict(False, f"not within {life.get('watched', 0):.0f} s, last {(life.get('states') or ['no state'])[-1]}")


def _end(replies: Replies) -> Verdict:
    seconds = life_of(replies).get("ended_after")
    return verdict(False, "it did not end") if seconds is None else verdict(seconds <= _ENDS_WITHIN, f"after {seconds:.0f} s")


def aspects(replies: Replies, word: str, aspect: str) -> list[str]:
    """What ``aspect`` was in the looks at which the state was ``word``, in order and without repetitions."""
    looks = [look for look in life_of(replies).get("looks") or [] if look.get("state") == word and aspect in look]
    return list(dict.fromkeys(look[aspect] for look in looks))
