# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs checks, cheapest first, and ends with pytest, two processes at a time: the fast levels whole and a sample of the slow ones.

``--all`` runs every check and every test that this machine can run. The real control plane, mesh and container runtime are then built in the
background where Go is; without Go their tests are skipped with one clear line each, unless TGP_REQUIRE_PLANE is set. The long checks and the
tests that wait for nothing run meanwhile, and then beside the others. ``--only style,types`` runs just those checks.
"""

from __future__ import annotations

import argparse
import collections
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
Group = tuple[str, ...]  # arguments of one process of pytest
PAGES: Group = ("tests/e2e/test_molecule.py", "tests/e2e/test_pages.py", "tests/e2e/test_readme.py")
KILLED: Group = ("tests/e2e/test_killed.py",)
_E2E = sorted(name for path in ROOT.glob("tests/e2e/test_*.py") if (name := f"tests/e2e/{path.name}") not in (*PAGES, *KILLED))
E2E: tuple[Group, ...] = tuple(tuple(_E2E[first::3]) for first in range(3))
# These compute and wait for nothing. A lane of their own with the least claim to the processor runs them while the other lanes wait.
# Stories of chaos replace the clocks and threads of their process.
BESIDE: tuple[Group, ...] = (("tests/unit",), ("tests/repository",), ("tests/mutation",), ("tests/chaos",))
# one lane takes groups from the front, another from the end, and the third helps: the short ones come last, so that all end together
LATER: tuple[Group, ...] = (
    *E2E[:2],
    KILLED,
    PAGES,
    E2E[2],
    ("tests/contract/act",),
    ("tests/contract", "--ignore=tests/contract/act"),
)
# before them whatever is in none of their levels: programs of others, which live in real time
_LEVELS = sorted({"/".join(path.split("/")[:2]) for group in (*LATER, *BESIDE) for path in group if not path.startswith("--")})
GROUPS: tuple[Group, ...] = (("tests", *(f"--ignore={level}" for level in _LEVELS)), *LATER)
# what a newcomer runs of the slow levels: one machine's whole life by playbooks, and what rents, joins, drains and deletes against emulators
SAMPLE_BESIDE: Group = (
    "tests/unit",
    "tests/repository",
    "tests/contract/act/test_call_budget.py",
    "tests/contract/act/test_cycle.py",
    "tests/contract/act/test_launch.py",
    "tests/contract/act/test_teardown.py",
    "tests/contract/act/test_leftovers.py",
    "tests/contract/clouds/test_every_cloud.py",
)
SAMPLE: Group = ("tests/e2e/test_provision.py", "tests/e2e/test_reap.py", "tests/e2e/test_money.py", "tests/e2e/test_molecule.py")
UNIT_HALF = ("tests/unit/fleet", "tests/unit/lanes", "tests/unit/talos")
PYTHON_FILES = ["plugins", "sandbox", "charts", "tests", "extensions"]


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def run(*command: str, **environment: str) -> int:
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode


def style() -> int:
    ruff = str(BIN / "ruff")
    return run(ruff, "check", "--quiet", *PYTHON_FILES) or run(ruff, "format", "--check", "--quiet", *PYTHON_FILES)


def types() -> int:
    return run(sys.executable, "-m", "mypy", "plugins/module_utils", "plugins/action", "plugins/lookup", "sandbox")


def lint() -> int:
    return run(str(BIN / "ansible-lint"), "--offline", "-q", "--nocolor")


def changelog() -> int:
    return run(str(BIN / "antsibull-changelog"), "lint")


def docs() -> int:
    """Documentation of plugins and roles: schema, markup, references. What is made of it for the site is looked at with --all only."""
    quick = [] if "--all" in sys.argv else ["--skip-rstcheck"]
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"  # it calls the programs of ansible-core by name
    return run(str(BIN / "antsibull-docs"), "lint-collection-docs", "--plugin-docs", *quick, ".", PATH=path)


def sanity() -> int:
    return run(sys.executable, "tests/run_sanity.py")


CHECKS = {"style": style, "types": types, "lint": lint, "changelog": changelog, "docs": docs, "sanity": sanity}
SLOW_CHECKS = ("sanity",)
LONG_CHECKS = ("lint", "changelog", "docs", "sanity")  # of a whole run: beside the tests


def plane() -> subprocess.Popen[bytes] | None:
    """Begin to build what needs Go; None when there is no Go (the tests say so)."""
    if shutil.which("go") is None:
        return None
    python = shlex.quote(sys.executable)
    # the others fetch packages; where they cannot, the tests that need them say so
    packages = f"{python} -m tests.node_real.debian; {python} -m tests.node_real.container_file"
    command = ["sh", "-c", f"{python} -m tests.build; built=$?; {packages}; exit $built"]
    return subprocess.Popen(["nice", *command] if shutil.which("nice") else command, cwd=ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every check and every test")
    parser.add_argument("--only", default="", help="these checks and no test")
    parser.add_argument("--unit", action="store_true", help="the level unit and nothing else, on two cores")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # a user's shell does not set it: with it each program compiles all that it imports
    chosen = [name for name in options.only.split(",") if name]
    if unknown := [name for name in chosen if name not in CHECKS]:
        parser.error(f"--only: there is no check {', '.join(unknown)}; checks are {', '.join(CHECKS)}")
    if options.unit:
        return tests([], (UNIT_HALF, ("tests/unit", *(f"--ignore={folder}" for folder in UNIT_HALF))))
    began = time.monotonic()
    lanes = options.all and not chosen and not options.pytest
    building = plane() if options.all and not chosen else None
    left_out = LONG_CHECKS if lanes else () if options.all else SLOW_CHECKS
    failed = run_checks(chosen or [name for name in CHECKS if name not in left_out])
    if chosen:
        return int(bool(failed))
    environment = {"TGP_FAILED_CHECKS": ",".join(failed), "TGP_DEAREST": "50" if options.all else "0"}
    if lanes:
        return tests([], GROUPS, BESIDE, Building(building, began), **environment) or int(bool(failed))
    if building is not None:
        Building(building, began).wait()
    say("tests" if options.pytest else "tests, a sample of the slow ones: `make test ALL=1` runs all, in about an hour")
    if failed:
        print(f"   before the tests begin: {', '.join(failed)} FAILED", flush=True)
    environment["TGP_MINUTES_BEFORE"] = f"{(time.monotonic() - began) / 60:.1f}"
    return tests(options.pytest, (SAMPLE, SAMPLE_BESIDE), **environment) or int(bool(failed))


def run_checks(names: t.Sequence[str]) -> list[str]:
    """Those that failed."""
    failed = []
    for name in names:
        started = time.monotonic()
        say(name)
        if CHECKS[name]() != 0:
            failed.append(name)
        print(f"   {name}: {'FAILED' if name in failed else 'ok'} in {time.monotonic() - started:.0f} s", flush=True)
    return failed


class Building:
    """What Go and the package mirrors are asked for in the background; ``process`` is None where there is no Go."""

    def __init__(self, process: subprocess.Popen[bytes] | None, began: float) -> None:
        self._process, self._began = process, began
        self.minutes = ""  # from the start of the run to its end

    def is_over(self) -> bool:
        if not self.minutes and (self._process is None or self._process.poll() is not None):
            self.wait()
        return bool(self.minutes)

    def wait(self) -> None:
        code = self._process.wait() if self._process is not None else 0
        self.minutes = f"{(time.monotonic() - self._began) / 60:.1f}"
        say("real control plane, mesh and container runtime")
        if code != 0:
            print("   not all of it could be built; the tests that need it are skipped", flush=True)
        print(f"   built or found after {self.minutes} min", flush=True)


def tests(
    chosen: list[str],
    groups: t.Sequence[Group],
    beside: t.Sequence[Group] = (),
    building: Building | None = None,
    **environment: str,
) -> int:
    """The chosen tests; or all groups, and after the long checks the groups ``beside`` them."""
    command = [sys.executable, "-m", "pytest", "-q"]
    if chosen:
        return run(*command, *chosen, **environment)
    checks = [[sys.executable, "tests/run.py", "--all", "--only", ",".join(LONG_CHECKS)]] if beside else []
    third = [*checks, *([*command, *group] for group in beside)]
    return in_lanes([[*command, *group] for group in groups], {**os.environ, **environment}, third, building)


class Lane:
    """Runs one program after the other until none is left. ``following`` takes the next one out of those that wait; ``failed`` are those that
    ended with another status than 0."""

    def __init__(self, following: t.Callable[[], list[str]], said: t.IO[bytes] | None, environment: dict[str, str]) -> None:
        self._following, self._said, self._environment = following, said, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._command: list[str] = []
        self.failed: list[str] = []

    def goes_on(self) -> bool:
        """Begin the next program if the one before has ended; False when there is none."""
        if self._process is not None:
            if self._process.poll() is None:
                return True
            if self._process.returncode != 0:
                self.failed.append(shlex.join(self._command))
            self._process = None
        try:
            self._command = self._following()
        except IndexError:
            return False
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment, stdout=self._said, stderr=self._said)
        return True

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def in_lanes(
    commands: t.Sequence[list[str]],
    environment: dict[str, str],
    beside: t.Sequence[list[str]] = (),
    building: Building | None = None,
) -> int:
    """Run all commands. One lane takes them from the first on, another, with less claim to the processor, from the last on; both begin when
    ``building`` is over. A third one, with the least claim, takes those ``beside`` them, from the start on, and then helps the first. What the
    second and the third lane printed comes last, then each test that failed and each command that did. 0 if all commands ended with 0."""
    waiting, aside = collections.deque(commands), collections.deque(beside)

    def is_built() -> bool:
        return building is None or building.is_over()

    def rest() -> list[str]:
        return aside.popleft() if aside or not is_built() else waiting.popleft()

    def nice(number: int) -> list[str]:
        return ["nice", "-n", str(number)] if shutil.which("nice") else []

    with tempfile.TemporaryFile() as second, tempfile.TemporaryFile() as third, tempfile.NamedTemporaryFile("r") as failures:
        environment["TGP_FAILURES"] = failures.name  # tests/conftest.py writes there
        first_two = (Lane(waiting.popleft, None, environment), Lane(lambda: [*nice(5), *waiting.pop()], second, environment))
        lanes = (*first_two, Lane(lambda: [*nice(10), *rest()], third, environment))
        try:
            while True:
                built = is_built()
                if built and building is not None:
                    environment["TGP_MINUTES_BEFORE"] = building.minutes
                if not any([lane.goes_on() for lane in (lanes if built else lanes[2:])]) and built:  # a list: each lane is asked
                    break
                time.sleep(0.1)
        finally:
            for lane in lanes:
                lane.end()
            for said in (second, third):
                say("what ran beside them")
                said.seek(0)
                sys.stdout.flush()
                shutil.copyfileobj(said, sys.stdout.buffer)
                sys.stdout.flush()
            for line in failures:  # once more: each process named them at its own end, perhaps thousands of lines ago
                print(f"FAILED: {line}", end="", flush=True)
    failed = [command for lane in lanes for command in lane.failed]
    for command in failed:
        print(f"FAILED: {command}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
