# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changelog agrees with its data, no fragment can be lost in a release, and the dry run of a release notices what is wrong."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests import release

from .tree import ROOT, below

ANTSIBULL = Path(sys.executable).parent / "antsibull-changelog"


def test_the_changelog_is_generated_from_its_data(tmp_path: Path) -> None:
    """Text that is edited by hand would be lost at the next release."""
    shutil.copy2(ROOT / "galaxy.yml", tmp_path)
    shutil.copytree(ROOT / "changelogs", tmp_path / "changelogs")
    for command in (["lint-changelog-yaml", "--strict", "changelogs/changelog.yaml"], ["generate"]):
        done = subprocess.run([str(ANTSIBULL), *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "CHANGELOG.rst").read_text() == (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")


def test_no_fragment_belongs_to_a_release() -> None:
    """A release deletes its fragments. What stayed would be repeated by the next one, or ignored with all that was added to it."""
    config = yaml.safe_load((ROOT / "changelogs" / "config.yaml").read_text(encoding="utf-8"))
    assert config["keep_fragments"] is False
    releases = release.released(ROOT)
    assert "0.1.0" in releases
    used = {name for entry in releases.values() for name in entry.get("fragments", ())}
    assert used & {path.name for path in below("changelogs/fragments")} == set()


# ---- the dry run


@pytest.mark.parametrize(
    ("current", "released", "following"),
    [("0.1.0", ["0.1.0"], "0.2.0"), ("0.2.0", ["0.1.0"], "0.2.0"), ("0.9.3", ["0.9.2", "0.9.3"], "0.10.0"), ("1.0.0", [], "1.0.0")],
)
def test_the_next_version(current: str, released: list[str], following: str) -> None:
    assert release.next_version(current, released) == following


def test_every_place_that_names_the_version_gets_the_next_one(tmp_path: Path) -> None:
    before, after = release.version_of(ROOT), "77.8.9"
    names = ["galaxy.yml", "README.md", *release.tracked(ROOT)]
    numbered = ("galaxy.yml", "README.md", "docs/", "examples/", "charts/tgp-gpu/Chart.yaml", "image/")
    for name in (one for one in names if one.startswith(numbered)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    changed = release.renumber(tmp_path, after)
    assert {"galaxy.yml", "charts/tgp-gpu/Chart.yaml", "image/Containerfile", "examples/execution-environment.yaml"} <= set(changed)
    assert release.version_of(tmp_path) == after
    texts = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.suffix in (".md", ".yml", ".yaml")}
    assert [str(path) for path, text in texts.items() if f"tgp-gpu-{before}" in text or f"tgp-gpu:{before}" in text] == []


def changelog(folder: Path, fragment: str = "", section: str = "v0.2.0") -> Path:
    """A made-up release 0.2.0 with one entry."""
    (folder / "changelogs" / "fragments").mkdir(parents=True)
    shutil.copy2(ROOT / "changelogs" / "config.yaml", folder / "changelogs")
    shutil.copy2(ROOT / "galaxy.yml", folder)
    entry = {"changes": {"bugfixes": ["reap - ends."]}, "fragments": ["a.yml"], "release_date": "2026-12-01"}
    text = yaml.safe_dump({"ancestor": None, "releases": {"0.2.0": entry}})
    (folder / "changelogs" / "changelog.yaml").write_text(text)
    (folder / "CHANGELOG.rst").write_text(f"Notes\n=====\n\n{section}\n======\n")
    if fragment:
        (folder / "changelogs" / "fragments" / fragment).write_text("---\n")
    return folder


def test_a_changelog_without_the_release_is_noticed(tmp_path: Path) -> None:
    assert release.check_changelog(changelog(tmp_path / "good"), "0.2.0") == "1 entries"
    with pytest.raises(release.Failed, match="has no release 0.3.0"):
        release.check_changelog(tmp_path / "good", "0.3.0")
    with pytest.raises(release.Failed, match="no section v0.2.0"):
        release.check_changelog(changelog(tmp_path / "old", section="v0.1.0"), "0.2.0")
    with pytest.raises(release.Failed, match="does not have: b.yml"):
        release.check_changelog(changelog(tmp_path / "left", fragment="b.yml"), "0.2.0")


@pytest.mark.parametrize(
    ("without", "more", "wrong"),
    [
        ("", "", ""),
        ("", "tests/run.py", "do not belong"),
        ("", ".github/workflows/ci.yml", "do not belong"),
        ("roles", "", "missing in the tarball: roles"),
    ],
)
def test_a_tarball_with_the_wrong_content_is_noticed(tmp_path: Path, without: str, more: str, wrong: str) -> None:
    names = [one if "." in one or one == "LICENSE" else f"{one}/some.yml" for one in sorted(release.NEEDED - {without})]
    with tarfile.open(tmp_path / "tgp.tar.gz", "w:gz") as packed:
        for name in [*names, *([more] if more else [])]:
            packed.addfile(tarfile.TarInfo(name), io.BytesIO())
    if wrong:
        with pytest.raises(release.Failed, match=wrong):
            release.check_tarball(tmp_path / "tgp.tar.gz")
    else:
        assert release.check_tarball(tmp_path / "tgp.tar.gz").startswith(f"{len(release.NEEDED)} files")


def test_a_failed_step_ends_the_dry_run_and_its_exit_status_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(_source: Path, _wanted: str, _tag: str) -> Path:
        with release.step("build"):
            raise release.Failed("no space left")

    monkeypatch.setattr(release, "build", build)
    monkeypatch.setattr(release, "state", lambda _folder: "same")
    assert release.main([]) == 1
    printed = capsys.readouterr().out
    assert "FAILED build" in printed and "no space left" in printed and "OK     the checkout is as it was" in printed


def test_a_checkout_that_changes_fails_the_dry_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    states = iter(["before", "after"])
    monkeypatch.setattr(release, "state", lambda _folder: next(states))
    monkeypatch.setattr(release, "dry_run", lambda *_arguments: None)
    assert release.main([]) == 1
    assert "FAILED the checkout is as it was" in capsys.readouterr().out


def test_nothing_of_the_developers_shell_reaches_the_fresh_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreign = {
        "ANSIBLE_ROLES_PATH": "x",
        "TGP_STATE_DIR": "x",
        "VAST_API_KEY": "x",
        "PYTHONPATH": "x",
        "VIRTUAL_ENV": "x",
        "KUBECONFIG": "x",
    }
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    environment = release.user_environment(tmp_path / "fresh", tmp_path / "collections", tmp_path / "home")
    assert set(environment) & set(foreign) == set()
    assert environment["PATH"].startswith(f"{tmp_path}/fresh/bin:") and environment["ANSIBLE_HOME"] == f"{tmp_path}/home"
