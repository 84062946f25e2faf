# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One entry of a market that cannot be read: it is left out with a warning, and everything else can be rented. Entries of lists of machines
are another matter (test_bad_days.py): one of them may be ours."""

from __future__ import annotations

import copy
import json
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import Offer

from sandbox import vast_cloud

from .stands import LambdaStand, Stand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand

#: where a market is read, and where its entries stand in the answer
MARKETS = {
    "lambda": (r"/instance-types$", "data"),
    "paperspace": (r"/os-templates", "items"),
    "runpod": (r"/catalog/gpus", "gpus"),
    "vast": (r"/bundles/", "offers"),
}
ODD = (None, "", "text", -1, 0.5, True, [], {}, [None], {"a": None}, 10**30, float("nan"))


@pytest.fixture(params=[LambdaStand, PaperspaceStand, RunpodStand, VastStand], ids=lambda kind: kind.service)
def market(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    made: Stand = request.param()
    yield made
    made.close()


class Odd(httpx.BaseTransport):
    """The emulator, but for the market: there ``changed`` has a hand in the answer's body."""

    def __init__(self, stand: Stand, changed: t.Callable[[t.Any], None]) -> None:
        self._inner, self._path, self._changed = stand.transport(), MARKETS[stand.service][0].rstrip("$"), changed

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        if self._path not in str(request.url):
            return answer
        body = json.loads(answer.read())
        self._changed(body)
        return httpx.Response(answer.status_code, content=json.dumps(body).encode(), headers={"content-type": "application/json"})


def offers(stand: Stand, monkeypatch: pytest.MonkeyPatch, changed: t.Callable[[t.Any], None]) -> tuple[list[Offer], list[str]]:
    warnings: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(stand, "transport", lambda _url="", odd=Odd(stand, changed): odd)
        found = t.cast(t.Any, stand).cloud(warn=warnings.append).offers()
    return found, warnings


def ids(found: t.Iterable[Offer]) -> set[str]:
    return {one.id for one in found}


def entries(stand: Stand, body: t.Any) -> list[t.Any]:
    """The list of entries; that of Lambda is an object, whose values it is."""
    listed = body[MARKETS[stand.service][1]]
    return list(listed.values()) if isinstance(listed, dict) else listed


@pytest.mark.parametrize("entry", [None, 3, "text", [], {}, {"id": ""}], ids=repr)
def test_an_entry_that_is_none_is_left_out_with_a_warning(market: Stand, monkeypatch: pytest.MonkeyPatch, entry: t.Any) -> None:
    def add(body: t.Any) -> None:
        listed = body[MARKETS[market.service][1]]
        if isinstance(listed, dict):
            listed["odd"] = entry
        else:
            listed.insert(0, entry)

    before, silence = offers(market, monkeypatch, lambda body: None)
    after, warnings = offers(market, monkeypatch, add)
    assert not silence and before and ids(after) == ids(before)
    (said,) = warnings  # once, although Vast.ai's market is read for auction and on demand
    assert said.startswith(f"{market.service}: 1 entry of what it offers cannot be read and is left out: ")


def test_any_field_may_be_anything_and_the_other_offers_stay(market: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field of one entry, at any depth, in turn null, a text, a list, a negative number and so on."""
    seen: list[t.Any] = []
    before, _silence = offers(market, monkeypatch, lambda body: seen.append(copy.deepcopy(body)))
    example = {**entries(market, seen[0])[0], "verified": True, "country_code": "CA"}
    foreign = {one.id for one in before} - ids(offers(market, monkeypatch, lambda body: _drop_first(market, body))[0])
    others = ids(before) - foreign
    for path in fields(example):
        for value in ODD:

            def change(body: t.Any, path: tuple[t.Any, ...] = path, value: t.Any = value) -> None:
                at = entries(market, body)[0]
                for step in path[:-1]:
                    if not isinstance(at, (dict, list)) or (isinstance(at, dict) and step not in at):
                        return
                    at = at[step]
                at[path[-1]] = value

            found, _warnings = offers(market, monkeypatch, change)
            assert others <= ids(found), (path, value)
            assert all(one.price_hour is None or one.price_hour >= 0 for one in found), (path, value)


def _drop_first(stand: Stand, body: t.Any) -> None:
    listed = body[MARKETS[stand.service][1]]
    if isinstance(listed, dict):
        listed.pop(next(iter(listed)))
    else:
        listed.pop(0)


def fields(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """The paths of all fields; of a list its first element's."""
    steps = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from fields(inner, (*path, step))


def test_a_market_of_which_nothing_can_be_read_is_no_empty_one(market: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(body: t.Any) -> None:
        listed = body[MARKETS[market.service][1]]
        for key in list(listed) if isinstance(listed, dict) else range(len(listed)):
            listed[key] = 7

    with pytest.raises(errors.BadShape):
        offers(market, monkeypatch, spoil)


def test_an_odd_row_does_not_end_the_pages_of_vast(vast_stand: VastStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full answer in which some rows have no id, and some no price to go on from."""
    rows = ({"id": 1000 + number, "gpu": "L40S", "price": f"0.{500 + number}"} for number in range(150))
    vast_stand.world.offers[:] = [vast_cloud.vast_offer(entry) for entry in rows]

    def spoil(body: t.Any) -> None:
        for number, row in enumerate(body["offers"]):
            if row["id"] % 10 == 3:
                body["offers"][number] = {"id": None, "was": row["id"]}
            if row["id"] % 10 == 4:
                row["dph_total"] = None

    found, warnings = offers(vast_stand, monkeypatch, spoil)
    assert ids(found) >= {str(1000 + number) for number in range(150) if number % 10 != 3}
    assert any("id of an offer" in one for one in warnings)
