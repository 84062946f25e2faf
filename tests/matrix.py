# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make matrix``: tests with each valid combination of ansible-core and Python that this machine has.

Each combination has a virtual environment below ``.cache/matrix``, made at the first run and kept until a file of requirements changes. A
Python that is not installed is one line and no failure. The minutes are those of the tests. The exit status is 1 when a combination failed,
and 2 when none ran.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "matrix"
REQUIREMENTS = ("requirements.txt", "sandbox/requirements.txt", "tests/requirements.txt")
#: ansible-core → oldest and newest Python of its controllers, as the package's own classifiers say
CONTROLLERS = {"2.19": ("3.11", "3.13"), "2.20": ("3.12", "3.14"), "2.21": ("3.12", "3.14"), "2.22": ("3.13", "3.15")}
#: releases of which only these or newer exist; an installer takes a pre-release only where one is named
PRE_RELEASES = {"2.22": "2.22.0rc0"}
#: Pythons that this collection is tested with
PYTHONS = ("3.11", "3.12", "3.13")
#: all that depends on the Python, and a machine's life by the playbooks, which depends on ansible-core
TESTS = ("tests/unit", "tests/e2e/test_provision.py")
_CLOSING = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed|skipped|error|deselected|xfailed).*?) in [\d.]+s\b", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Combination:
    core: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.core}/{self.python}"

    @property
    def requirement(self) -> str:
        return f"ansible-core~={PRE_RELEASES.get(self.core, f'{self.core}.0')}"

    @property
    def folder(self) -> Path:
        return FOLDER / f"core{self.core}-py{self.python}"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A line of the closing table. ``result`` begins with ``skipped`` or ``FAILED`` unless all is well."""

    core: str
    python: str
    minutes: float | None
    result: str


class NotReady(Exception):
    """Why the environment of a combination cannot be used, in one line."""


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def combinations(
    controllers: t.Mapping[str, tuple[str, str]] = CONTROLLERS, pythons: t.Sequence[str] = PYTHONS
) -> list[Combination]:
    """Every release of ansible-core with each of the Pythons that its controllers run on."""
    return [
        Combination(core, python)
        for core, (oldest, newest) in controllers.items()
        for python in pythons
        if _order(oldest) <= _order(python) <= _order(newest)
    ]


def chosen(only: str, known: t.Sequence[Combination]) -> list[Combination]:
    """Those that ``only`` names by release, Python or both: ``2.22,2.19/3.11``. ValueError for a name that fits none."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    if unfit := [name for name in names if not any(name in (one.core, one.python, one.name) for one in known)]:
        raise ValueError(f"no combination {', '.join(unfit)}; combinations are {', '.join(one.name for one in known)}")
    return [one for one in known if not names or {one.core, one.python, one.name} & set(names)]


def exit_status(rows: t.Sequence[Row]) -> int:
    """1 when one failed, 2 when nothing ran."""
    if any(row.result.startswith("FAILED") for row in rows):
        return 1
    return 0 if any(not row.result.startswith("skipped") for row in rows) else 2


def table(rows: t.Sequence[Row]) -> str:
    lines = [f"{'ansible-core':<14}{'Python':<9}{'minutes':>7}  result"]
    for row in rows:
        lines.append(f"{row.core:<14}{row.python:<9}{'' if row.minutes is None else f'{row.minutes:.1f}':>7}  {row.result}")
    return "\n".join(lines)


# ---- Pythons


def _uv() -> str | None:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _answered(command: t.Sequence[str], **environment: str) -> str:
    """What the command printed; nothing when it failed or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment}, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def find_python(version: str) -> Path | None:
    """The interpreter itself, not a shim nor a virtual environment: by its name, by pyenv, by uv. Nothing is downloaded."""
    probe = "import sys, venv; print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))"
    tries: list[tuple[str, dict[str, str]]] = [(f"python{version}", {}), (f"python{version}", {"PYENV_VERSION": version})]
    if uv := _uv():
        found = _answered([uv, "python", "find", "--no-project", "--system", "--no-python-downloads", version])
        tries += [(found, {})] if found else []
    for command, environment in tries:
        said, _blank, path = _answered([command, "-c", probe], **environment).partition(" ")
        if said == version and Path(path).exists():
            return Path(path)
    return None


# ---- environments


def _fingerprint(combination: Combination, python: Path) -> str:
    parts = [combination.requirement.encode(), str(python).encode(), *((ROOT / name).read_bytes() for name in REQUIREMENTS)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _install(command: t.Sequence[str], what: str) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        words = [line.strip(" \t│╰─▶×") for line in done.stdout.splitlines() if line.strip()]
        raise NotReady(f"{what}: {' '.join(words)[:300] or 'no output'}")


def prepare(combination: Combination, python: Path) -> None:
    """The environment of a combination, with the checkout linked in as the collection; nothing to do when it is as it should be."""
    ready, fingerprint = combination.folder / ".ready", _fingerprint(combination, python)
    if ready.exists() and ready.read_text() == fingerprint:
        return
    uv = _uv()
    if uv is None:
        raise NotReady("uv is missing; `make venv` installs it")
    shutil.rmtree(combination.folder, ignore_errors=True)
    _install([uv, "venv", "--quiet", "--python", str(python), str(combination.folder)], "the environment cannot be made")
    given = [part for name in REQUIREMENTS for part in ("-r", name)]
    inside = str(combination.folder / "bin" / "python")
    _install([uv, "pip", "install", "--quiet", "--python", inside, *given, combination.requirement], "cannot be installed")
    purelib = Path(_answered([inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))
    link = purelib / "ansible_collections" / "tgp" / "gpu"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(ROOT)
    ready.write_text(fingerprint)


def versions(combination: Combination) -> tuple[str, str]:
    """Of ansible-core and Python, as they are installed."""
    code = "import importlib.metadata as m, platform; print(m.version('ansible-core'), platform.python_version())"
    core, _blank, python = _answered([str(combination.folder / "bin" / "python"), "-c", code]).partition(" ")
    if not core.startswith(f"{combination.core}.") or not python.startswith(f"{combination.python}."):
        raise NotReady(f"the environment has ansible-core {core or 'unknown'} and Python {python or 'unknown'}")
    return core, python


# ---- tests


def run_tests(combination: Combination, tests: t.Sequence[str]) -> tuple[int, str, Path]:
    """Exit status, closing line and log of pytest."""
    log = FOLDER / f"{combination.folder.name}.log"
    bin_folder = combination.folder / "bin"
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "VIRTUAL_ENV": str(combination.folder),
    }
    environment.pop("PYENV_VERSION", None)
    command = [str(bin_folder / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    with log.open("w", encoding="utf-8") as output:
        status = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    closing = _CLOSING.findall(log.read_text(encoding="utf-8", errors="replace"))
    return status, closing[-1] if closing else "no closing line", log


def run(combination: Combination, tests: t.Sequence[str]) -> Row:
    python = find_python(combination.python)
    if python is None:
        return Row(combination.core, combination.python, None, f"skipped: Python {combination.python} is not installed")
    core_found, python_found = combination.core, combination.python
    try:
        prepare(combination, python)
        core_found, python_found = versions(combination)
    except NotReady as error:
        return Row(core_found, python_found, None, f"FAILED: {error}")
    began = time.monotonic()
    status, closing, log = run_tests(combination, tests)
    minutes = (time.monotonic() - began) / 60
    if status:
        return Row(core_found, python_found, minutes, f"FAILED: {closing}, see {log.relative_to(ROOT)}")
    return Row(core_found, python_found, minutes, closing)


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="releases, Pythons or both, with commas between them: 2.22,2.19/3.11")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default 1)")
    parser.add_argument("--list", action="store_true", help="print the valid combinations and run nothing")
    parser.add_argument("tests", nargs="*", default=list(TESTS), help=f"what pytest runs (default: {' '.join(TESTS)})")
    options = parser.parse_args(arguments)
    try:
        wanted = chosen(options.only, combinations())
    except ValueError as error:
        parser.error(f"--only: {error}")
    if options.list:
        print("\n".join(one.name for one in wanted))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{len(wanted)} combinations, each with {' '.join(options.tests)}", flush=True)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        for row in pool.map(lambda one: run(one, options.tests), wanted):
            rows.append(row)
            print(f"ansible-core {row.core} on Python {row.python}: {row.result}", flush=True)
    print(f"\n{table(rows)}")
    return exit_status(rows)


if __name__ == "__main__":
    sys.exit(main())
