# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many files a reader of one run opens. docs/explanation/architecture.md names the numbers."""

from __future__ import annotations

from tests.bench.walk import walk

_SLACK = 3  # files that only a slow host passes through: a second look, a retry
MOST = {"provision.yml, one rented node": 145, "fleet_info": 74, "reap.yml, one idle node": 131}


def test_a_reader_of_one_run_opens_few_files() -> None:
    counted = {name: len(trace.files) for name, trace in walk().items()}
    assert set(counted) == set(MOST)
    assert {name: number for name, number in counted.items() if number > MOST[name] + _SLACK or number < 10} == {}
