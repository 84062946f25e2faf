# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of other services are not stored."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import note_detail, without_details
from hypothesis import given
from hypothesis import strategies as st

KEPT = "lambda: POST /launch was answered 400 a/b"


@given(st.text(min_size=1), st.integers(0, 40))
def test_only_status_and_code_are_kept(said: str, cut: int) -> None:
    errors._details.clear()  # a sentence of an earlier example may begin with this one and its full stop
    note_detail(KEPT, said)
    whole = f"{KEPT}: {said}"
    assert without_details(whole) == KEPT
    assert without_details([{"why": f"x: {whole}."}]) == [{"why": f"x: {KEPT}."}]
    assert without_details(whole[: len(KEPT) + 2 + cut]) == KEPT  # a limit of length cut it
    assert without_details(said) == said  # the words alone may be anybody's


@pytest.mark.parametrize("value", [None, 1, True, "", "text", {"a": [1, "b"]}])
def test_all_else_stays(value: object) -> None:
    note_detail(KEPT, "text")
    assert without_details(value) == value


def test_a_sentence_that_begins_another_hides_nothing_of_it() -> None:
    note_detail(KEPT, "no")
    note_detail(KEPT, "no room at all")
    assert without_details(f"{KEPT}: no room at all. {KEPT}: no.") == f"{KEPT}. {KEPT}."
    note_detail("tgp-a", "tgp-b")  # no message of ours
    assert without_details("tgp-a: tgp-b") == "tgp-a: tgp-b"
