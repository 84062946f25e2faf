# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at an account of Vast.ai shows: whether there is money, and the SSH key without which no virtual machine is made."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ...core.errors import Forbidden
from ...units.money import print_money
from ..base import CloudCheck
from .api import VastApi
from .records import decimal

_USER, _KEYS = "/api/v0/users/current/", "/api/v0/ssh/"


def examine(api: VastApi, count: int) -> CloudCheck:
    """Raises ApiError when the account cannot be read. ``count``: how many instances it has."""
    user = api.read(_USER)
    api.http.expect(user.get("id"), int, f"GET {_USER}", "id")
    credit, balance = (decimal(user.get(key)) or Decimal(0) for key in ("credit", "balance"))
    sentence = (
        f"vast: the API key is accepted; the account has {count} instance{'' if count == 1 else 's'}, "
        f"{_dollars(credit)} credit and a balance of {_dollars(balance)}."
    )
    return CloudCheck(sentence, tuple(_warnings(api, user, credit + balance)))


def _warnings(api: VastApi, user: t.Mapping[str, t.Any], money: Decimal) -> t.Iterator[str]:
    if money <= 0:
        yield "vast: there is no money in the account: nothing can be rented, and what runs is stopped. Add credit."
    if user.get("ssh_key"):
        return
    try:
        listed = _keys(api)
    except Forbidden:
        yield "vast: the API key may not read the account's SSH keys; without one no virtual machine is made."
        return
    if not listed:
        yield "vast: the account has no SSH key: no virtual machine, so no node, can be made (containers can). Add one in the console."


def _keys(api: VastApi) -> list[t.Any]:
    """Documented as an object with the keys in it, seen as a bare list."""
    what = f"GET {_KEYS}"
    body = api.read_any(_KEYS)
    if isinstance(body, dict):
        body = body.get("ssh_keys")
    return t.cast("list[t.Any]", api.http.expect(body, list, what, "ssh_keys"))


def _dollars(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}${print_money(abs(amount))}"
