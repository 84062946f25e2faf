# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S1-14: one file in ``clouds/`` and one module are a whole new cloud. The files are in ``dummy/``; ``dummy/story.py`` uses them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DUMMY = pathlib.Path(__file__).with_name("dummy")
_KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    """What became of the dummy cloud in a process that found it."""
    folder = tmp_path_factory.mktemp("dummy")
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"TGP_RUNTIME_DIR": str(folder / "pace"), "TGP_STATE_DIR": str(folder / "state")}
    story = [sys.executable, "-m", "tests.contract.clouds.dummy.story", str(folder)]
    run = subprocess.run(story, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return t.cast("dict[str, t.Any]", json.loads(run.stdout.splitlines()[-1]))


def test_S1_14_one_file_and_one_module_are_all(seen: dict[str, t.Any]) -> None:
    assert sorted(path.name for path in (DUMMY / "providers").rglob("*.py")) == ["__init__.py", "cloud.py"]
    assert [path.name for path in (DUMMY / "modules").glob("*.py")] == ["dummy_instance.py"]
    assert "dummy" in seen["clouds"]
    product = [path for part in ("plugins", "playbooks", "roles", "meta") for path in (ROOT / part).rglob("*") if path.is_file()]
    knowing = [path for path in product if path.suffix in (".py", ".yml") and "dummy_" in path.read_text(encoding="utf-8")]
    assert knowing == []


def test_S1_14_documents_may_name_it_and_its_settings_are_checked(seen: dict[str, t.Any]) -> None:
    found = seen["documents"]
    assert "settings.shelf: 'middle' is not possible here. Use one of upper, lower." in found["value"]
    assert "unknown field. Did you mean shelf?" in found["field"]
    assert "Did you mean dummy?" in found["typo"]
    assert "dummy rents no interruptible machines" in found["spot"]


def test_S1_14_it_is_listed_and_checked(seen: dict[str, t.Any]) -> None:
    found = seen["information"]
    assert found["offers"] == [
        ["small@attic", "0.40", "eu-central", ["kubelet"]],
        ["large@attic", "0.90", "eu-central", ["kubelet"]],
    ]
    assert found["asked by itself"] == ["dummy"]  # who has its key need not name it
    assert found["check"]["ok"] and found["check"]["message"].startswith("dummy: the API key is accepted")
    assert seen["fleet"]["listed"] == [["dummy", "running"]]
    assert seen["fleet"]["status"]


def test_S1_14_a_fleet_is_rented_there_and_given_back(seen: dict[str, t.Any]) -> None:
    found = seen["fleet"]
    assert (found["launched"], found["joined"], found["gone"]) == (["launched"], ["ready"], ["gone"])
    assert found["shelf"] == "lower"  # the class's setting arrived
    assert found["after a lost answer"] == ["ready"] and found["a failed list ends nothing"]
    assert found["ledger"] == [["dummy", "Manual"]] * 2
    assert found["left"] == {}


def test_S1_14_its_own_module_rents_once_and_gives_back_once(seen: dict[str, t.Any]) -> None:
    assert seen["alone"] == {"changed": [True, False, True, False], "left": {}}


@pytest.mark.parametrize("place", ["option", "environment", "mine", "tgp-operator-secret"])
def test_S1_14_its_key_is_found_in_every_place(seen: dict[str, t.Any], place: str) -> None:
    """``mine`` is a Secret that the class's credentialsRef names."""
    assert seen["credentials"][place] == ["dummy"]


def test_S1_14_its_key_is_in_no_text(seen: dict[str, t.Any]) -> None:
    found = seen["credentials"]
    launched, (told,) = found["nowhere"]
    assert launched == [] and "the option dummy_api_key" in told
    assert "Check DUMMY_API_KEY" in found["wrong"]
    assert found["option is secret"] and seen["keys in any text"] == []
