# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's file of release tables: what it adds and replaces, and what is said of a wrong one, with its line and field (B-19)."""

from __future__ import annotations

from datetime import date

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.observe.release_tables import extended
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases import staleness
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases.tables import BUILT_IN

GOOD = """
asOf: 2027-01-15
source: https://example.test/extensions/v1.16.0
talosReleases:
  - release: "1.16"
    seen: "1.16.0"
    kubernetes: {oldest: "1.34", newest: "1.39"}
    drivers: {lts: 595, production: 615}
  - release: "1.15"
    seen: "1.15.3"
    drivers: {production: 610}
"""


def test_B19_rows_of_the_file_are_added_and_replace_what_they_name() -> None:
    tables = extended(BUILT_IN, GOOD, "mine.yml")
    assert (
        tables.newest == (1, 16)
        and tables.kubernetes((1, 16)) == (34, 39)
        and tables.drivers((1, 16)) == {"lts": 595, "production": 615}
    )
    assert tables.drivers((1, 15)) == {"lts": 580, "production": 610, "new-feature": 615}
    assert tables.kubernetes((1, 15)) == BUILT_IN.kubernetes((1, 15)) and tables.releases[1, 13] is BUILT_IN.releases[1, 13]
    assert BUILT_IN.newest == (1, 15) and not BUILT_IN.releases[1, 15].origin


def test_B19_the_files_day_counts_for_the_tables_of_releases_and_its_rows_are_shown() -> None:
    tables = extended(BUILT_IN, GOOD, "mine.yml")
    assert [origin.as_of for origin in tables.origins] == [date(2027, 1, 15), date(2027, 1, 15), BUILT_IN.origins[2].as_of]
    assert staleness.sentence(tables).endswith("as of 2026-11-22; Talos 1.15, 1.16 from mine.yml")
    [said] = staleness.warnings(tables, [], date(2027, 4, 1))
    assert "'GPU models'" in said
    older = extended(BUILT_IN, GOOD.replace("2027-01-15", '"2025-01-15"'), "mine.yml")
    assert older.origins == BUILT_IN.origins


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("asOf: 2027-01-15", "asOff: 2027-01-15", "mine.yml:2: asOff: unknown field. Did you mean asOf?"),
        ("asOf: 2027-01-15", 'asOf: "2027-13-45"', "mine.yml:2: asOf: '2027-13-45' is not a day."),
        ("asOf: 2027-01-15", "asOf: soon", "mine.yml:2: asOf: 'soon' is not a day like 2026-12-20."),
        ("lts: 595", "Lts: 595", "mine.yml:8: talosReleases[0].drivers.Lts: unknown field."),
        ("lts: 595", "lts: '595'", "mine.yml:8: talosReleases[0].drivers.lts: a whole number is needed, not"),
        ('release: "1.16"', "release: 1.16", 'mine.yml:5: talosReleases[0].release: text is needed, not a number (1.16). Write a minor'),
        ('seen: "1.16.0"', 'seen: "1.17.0"', "mine.yml:6: talosReleases[0].seen: 1.17.0 is not a release of Talos 1.16."),
        ('oldest: "1.34"', 'oldest: "1.40"', "mine.yml:7: talosReleases[0].kubernetes.oldest: 1.40 is newer than 1.39, the newest."),
        ("    drivers: {lts: 595, production: 615}\n", "", "mine.yml:5: talosReleases[0].drivers: Talos 1.16 has no built-in row"),
    ],
)  # fmt: skip
def test_B19_a_wrong_file_is_refused_with_line_and_field(before: str, after: str, words: str) -> None:
    assert before in GOOD
    with pytest.raises(InvalidInput) as caught:
        extended(BUILT_IN, GOOD.replace(before, after, 1), "mine.yml")
    assert any(problem.startswith(words) for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(("text", "words"), [("a: [", "is not valid YAML"), ("- 1", "is not a mapping"), ("", "is not a mapping")])
def test_B19_what_is_no_table_at_all_is_told(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        extended(BUILT_IN, text, "mine.yml")
