# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML as Talos reads it."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import parse, to_yaml
from hypothesis import given
from hypothesis import strategies as st


def test_d08_a_repeated_key_is_an_error_with_its_line():
    with pytest.raises(InvalidInput, match="line 4.*'files' a second time"):
        parse("machine:\n  files: []\n  type: worker\n  files: []\n", "the template")


def test_words_and_numbers_are_those_of_yaml_1_2():
    text = "a: yes\nb: on\nc: true\nd: 0o600\ne: 0600\nf: 2026-09-01T00:00:00Z\ng: 1_000\nh: 12:30\ni: 1.5\nj: ~\nk: 0x10\nl: -7\nm: ''\n"
    assert parse(text, "text") == [{
        "a": "yes", "b": "on", "c": True, "d": 384, "e": 384, "f": "2026-09-01T00:00:00Z", "g": "1_000", "h": "12:30", "i": 1.5,
        "j": None, "k": 16, "l": -7, "m": "",
    }]  # fmt: skip


def test_merge_keys_and_empty_documents():
    assert parse("---\n---\na: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", "text") == [{"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}]


@pytest.mark.parametrize(
    "text",
    ["- a\n", "a\n", "a: !!python/object/apply:os.system [id]\n", "a: [", "a: b: c\n", "\tx: 1\n", "a: *x\n", "a: &x [*x]\n"],
)
def test_what_is_no_mapping_is_refused(text):
    with pytest.raises(InvalidInput, match="the template"):
        parse(text, "the template")


@pytest.mark.parametrize("text", ["a: {{ Name }}", "machine:\n  token: {{ MachineToken }}\n", "? [a, b]\n: c\n"])
def test_braces_that_nobody_filled_in_are_named_with_their_line(text):
    line = 1 + text.startswith("machine")
    with pytest.raises(InvalidInput, match=f"the file: line {line} has a mapping or a list where a key should be; are the braces"):
        parse(text, "the file")


@pytest.mark.parametrize("tag", ["int", "float", "bool", "timestamp"])
def test_a_value_that_is_not_what_its_tag_says_is_refused_and_not_shown(tag):
    with pytest.raises(InvalidInput, match="the file is not valid YAML") as caught:
        parse(f"a: !!{tag} a-value-of-tests", "the file")
    assert "a-value-of-tests" not in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.123eo-", min_size=1, max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1), values, min_size=1, max_size=4))
def test_what_is_written_is_read_back_by_either_yaml_version(document):
    text = to_yaml([document])
    assert parse(text, "text") == [document]
    assert list(yaml.safe_load_all(text)) == [document]


@pytest.mark.parametrize("word", ["true", "no", "0o17", "1e3", "1.5", "null", "0x10", "012", "12:30", "2026-01-01", "1_0"])
def test_words_that_look_like_something_else_are_quoted(word):
    assert to_yaml([{"a": word}]).strip() == f"a: '{word}'"


def test_subclasses_of_the_plain_types_are_written_like_them():
    class Text(str):
        pass

    class Mapping(dict):
        pass

    class Items(list):
        pass

    class Number(int):
        pass

    assert to_yaml([Mapping(a=Items([Text("b"), Text("1.5"), Text("c\nd\n"), Number(3), True]))]) == (
        "a:\n- b\n- '1.5'\n- |\n  c\n  d\n- 3\n- true\n"
    )
