# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has no Go, or an old one, is told so in one line and by the exit status."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tests import build as programs


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources without anything built from them."""
    for folder in {one.folder for one in programs.PROGRAMS.values()}:
        shutil.copytree(programs.ROOT / "tests" / folder, tmp_path / "tests" / folder)
    monkeypatch.setattr(programs, "ROOT", tmp_path)


def _fake_go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def test_without_go(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.main(["plane"]) == 3
    assert capsys.readouterr().err == "plane: not built, Go 1.26 or newer is not installed.\n"


def test_with_an_old_go(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    _fake_go(tmp_path, monkeypatch, "echo go1.22.4")
    assert programs.main(["plane"]) == 4
    assert capsys.readouterr().err == "plane: not built, it needs Go 1.26 or newer and this is go1.22.4.\n"


def test_a_failed_build(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    _fake_go(tmp_path, monkeypatch, 'test "$1" = env && echo go1.26.8 && exit; echo "main.go:1: no such thing"; exit 1')
    assert programs.main(["machinery"]) == 5
    told = capsys.readouterr().err
    assert "main.go:1: no such thing" in told and told.count("\n") == 1
    assert not programs.binary("machinery").exists()


def test_the_place_follows_the_sources(tmp_path: pathlib.Path) -> None:
    before = {name: programs.binary(name) for name in programs.PROGRAMS}
    with open(tmp_path / "tests" / "plane" / "main.go", "a", encoding="utf-8") as source:
        source.write("// another\n")
    assert programs.binary("plane") != before["plane"] and programs.binary("machinery") == before["machinery"]
