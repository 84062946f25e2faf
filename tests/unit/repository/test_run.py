# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs the checks cannot be content with having run none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .tree import ROOT


@pytest.mark.parametrize("only", ["stlye", "style,typs"])
def test_a_check_that_there_is_not_is_an_error(only: str) -> None:
    done = subprocess.run([sys.executable, "tests/run.py", "--only", only], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no check" in done.stderr and "checks are style, types, lint" in done.stderr
    assert done.stdout == ""
