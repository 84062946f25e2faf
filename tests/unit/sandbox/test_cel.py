# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator's CEL: results, faults and what it cannot read, as the language definition has them."""

from __future__ import annotations

import typing as t

import pytest

from sandbox.kube import cel

SELF: dict[str, t.Any] = {"a": 1, "b": {"c": "x"}, "list": [1, 2, 2], "names": {"k": "v"}, "yes": True, "dyn": "5m"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("has(self.a)", True),
        ("has(self.b.c) && !has(self.b.d)", True),
        ("!has(self.missing) || self.missing > 3", True),
        ("self.missing > 3 || true", True),  # a side that decides hides a fault of the other
        ("self.missing > 3 && false", False),
        ("self.a == 1 ? 'one' : self.missing", "one"),
        ("self.a + 2 <= 3", True),
        ("'a' + \"b\" + 'it\\'s'", "abit's"),
        ("self.list.all(one, one > 0)", True),
        ("self.list.all(one, self.list.exists_one(other, other == one))", False),
        ("self.list.exists(one, one == 2)", True),
        ("size(self.list.filter(one, one == 2)) == 2", True),
        ("self.list[0] == 1 && self.names['k'] == 'v'", True),
        ("self.names.all(key, key in ['k'])", True),
        ("2 in self.list && !('z' in self.names)", True),
        ("type(self.a) == int && type(self.dyn) == string", True),
        ("type(self.dyn) == int ? self.dyn >= 0 : self.dyn.matches('^[0-9]+m$')", True),
        ("self.dyn.matches('5')", True),  # anywhere
        ("'5\\n'.matches('5$')", False),  # the end of the text, not of a line
        ("'La-mb.da'.lowerAscii().replace('-', '').replace('.', '') == 'lambda'", True),
        ("string(self.a) + string(true)", "1true"),
        ("double('0.5') < 1.0 && int('3') == 3", True),
        ("self.yes == true && self.yes != 1", True),
        ("'TGP_X'.startsWith('TGP_')", True),
    ],
)
def test_a_rule_has_its_result(text: str, result: t.Any) -> None:
    assert cel.compiled(text)(SELF) == result


@pytest.mark.parametrize(
    "text", ["self.missing", "self.a && true", "self.a.b", "self.a < 'x'", "self.list[9]", "self.a.matches('1')", "self.a + 'x'"]
)
def test_a_rule_without_a_result_is_a_fault(text: str) -> None:
    with pytest.raises(cel.Fault):
        cel.compiled(text)(SELF)


@pytest.mark.parametrize(
    "text", ["self.a ==", "has(self)", "frob(self.a)", "self.a.frob()", "self.a # 1", "(self.a", "self.a self.b"]
)
def test_what_is_no_cel_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        cel.compiled(text)
