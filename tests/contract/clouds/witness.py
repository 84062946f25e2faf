# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all witnesses share: a folder of its own per foreign package, a real socket, a process that is talked to in lines, and the notes of
what was asked and answered.

The folders are filled once and kept in the repository's cache. ``pytest -s -m witness`` shows the notes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import typing as t

import pytest
from cheroot.wsgi import Server

CACHE = (pathlib.Path(__file__).resolve().parents[3] / ".cache" / "witness").resolve()  # several checkouts may share one
ONLY_LOOPBACK = pathlib.Path(__file__).with_name("only_loopback")
_INSTALL_SECONDS = 600
_ANSWER_SECONDS = 60
_CHARACTERS = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PRIVATE = re.compile(r"private_key|jupyter_token|jupyter_url|api_key$")
_FEW = 12
_tried: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Home:
    """A virtual environment with ``package`` (``name==version``) and what that requires, and nothing of ours."""

    package: str
    folder: pathlib.Path

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def environment(self, **variables: str) -> dict[str, str]:
        """What a process of the witness gets: nothing of the tests' own surroundings but the search path. It reaches the loopback
        interface only."""
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ONLY_LOOPBACK), "PYTHONDONTWRITEBYTECODE": "1", **variables}

    def contents(self) -> str:
        """The package with the version that is really there, its companions, by name where they are few, and what runs it."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        found = {one.metadata["Name"].lower(): one.version for one in importlib.metadata.distributions(path=[str(site)])}
        return f"{_told(self.package.partition('==')[0].lower(), found)}, Python {sys.version_info.major}.{sys.version_info.minor}"


@dataclasses.dataclass(frozen=True)
class NodeHome(Home):
    """A folder with ``package`` (``name@version``) of npm and what that requires."""

    def program(self, name: str) -> str:
        return str(self.folder / "node_modules" / self.package.rpartition("@")[0] / name)

    def environment(self, **variables: str) -> dict[str, str]:
        return super().environment(NODE_OPTIONS=f"--require {ONLY_LOOPBACK / 'node.cjs'}", **variables)

    def contents(self) -> str:
        modules = self.folder / "node_modules"
        packages = [json.loads(one.read_text()) for pattern in ("*", "@*/*") for one in modules.glob(f"{pattern}/package.json")]
        version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        return f"{_told(self.package.rpartition('@')[0], {one['name']: one['version'] for one in packages})}, Node {version}"


def _told(name: str, found: dict[str, str]) -> str:
    others = [f"{other} {version}" for other, version in sorted(found.items()) if other not in (name, "pip", "setuptools")]
    return f"{name} {found[name]} (with {', '.join(others) if len(others) <= _FEW else f'{len(others)} packages'})"


def home(package: str, *beside: str, alone: bool = False) -> Home:
    """The environment of ``package``; ``alone``: of what that requires only what is named ``beside``."""
    name = package.replace("==", "-")
    folder = CACHE / f"{name}-py{sys.version_info.major}{sys.version_info.minor}"
    fill = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    _fill(
        package,
        folder,
        [sys.executable, "-m", "venv", str(folder)],
        [*fill, *(["--no-deps"] if alone else []), package],
        *([[*fill, *beside]] if beside else []),
    )
    return Home(package, folder)


def node_home(package: str) -> NodeHome:
    """The folder of ``package`` of npm. Without Node it cannot be had either."""
    folder = CACHE / package.replace("@", "-").replace("/", "-").strip("-")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--fetch-retries=1"]
    _fill(package, folder, ["node", "--version"], ["npm", "install", *quiet, "--prefix", str(folder), package])
    return NodeHome(package, folder)


def _fill(package: str, folder: pathlib.Path, *commands: list[str]) -> None:
    """Fill the folder once. Where the package index cannot be reached the test is skipped; where all is required that is a failure."""
    CACHE.mkdir(parents=True, exist_ok=True)
    done = folder / "complete"
    with (CACHE / f"{folder.name}.lock").open("w") as lock:  # test processes beside this one wait for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text() == str(folder):  # programs in it name their place, so it cannot be moved
            return
        problem = _tried.get(package, "")  # once is enough for all tests of this process
        if not problem:
            shutil.rmtree(folder, ignore_errors=True)
            problem = _tried[package] = _run(package, commands)
        if problem:
            missing(problem)
        folder.mkdir(exist_ok=True)
        done.write_text(str(folder))


def installed(name: str) -> t.Any:
    """The module of a witness that tests/requirements.txt pins, for files that run it in the process of the tests."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"{name} is not installed (pip install -r tests/requirements.txt): {error}")


def missing(problem: str) -> t.NoReturn:
    """A witness cannot be had: that is a skip, and a failure where everything is required. Of a file as a whole when it is imported."""
    if os.environ.get("CI") or os.environ.get("TGP_REQUIRE_PLANE") == "1":
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem, allow_module_level=True)


def _run(package: str, commands: t.Sequence[list[str]]) -> str:
    """What went wrong, in one line."""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{package} could not be installed: {error}"
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            return f"{package} could not be installed: {said[-1]}"
    return ""


class Dialogue:
    """A process that is told one JSON value per line and answers each with one. It ends with :meth:`close`."""

    def __init__(self, command: t.Sequence[str], environment: dict[str, str], folder: pathlib.Path) -> None:
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def write(self, value: t.Any) -> None:
        try:
            self._process.stdin.write(json.dumps(value) + "\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            raise AssertionError(f"the client ended: {self._errors.read_text()}") from None

    def read(self) -> dict[str, t.Any]:
        watch = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        watch.cancel()
        assert line, f"the client ended or was silent for {_ANSWER_SECONDS} s: {self._errors.read_text()}"
        return t.cast("dict[str, t.Any]", json.loads(line))

    def close(self) -> None:
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def serving(app: t.Any) -> t.Iterator[str]:
    """``app`` on a socket of the loopback interface; the URL of its root."""
    server = Server(("127.0.0.1", 0), app)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.bind_addr[1]}"
    finally:
        server.stop()
        thread.join(5)


class Notes:
    """What the witness of one test asked and was answered, one line each, on standard output.

    Of objects with many fields only the ``telling`` ones are shown.
    """

    def __init__(self, test: str, who: Home, url: str, telling: t.Collection[str] = ()) -> None:
        self._telling = telling
        self._last, self._repeated = "", 0
        print(f"\n{test}\n  {who.contents()}, against {url}")

    def add(self, call: str, answer: t.Any) -> None:
        """``answer`` is text, which may be JSON, or what JSON can say. A line like the one before is counted, not repeated."""
        line = f"  {_line(call)}\n    -> {self._short(answer)}"
        if line == self._last:
            self._repeated += 1
            return
        self.close()
        self._last = line
        print(line)

    def close(self) -> None:
        if self._repeated:
            print(f"       ({self._repeated} more like it)")
        self._last, self._repeated = "", 0

    def _short(self, answer: t.Any) -> str:
        if isinstance(answer, str):
            try:
                answer = json.loads(answer)
            except ValueError:
                return _line(answer) or "(nothing)"
        many = isinstance(answer, list) and len(answer) > 1 and all(isinstance(one, dict) for one in answer)
        return (f"{len(answer)} entries: " if many else "") + _line(json.dumps(self._told(answer), ensure_ascii=False))

    def _told(self, value: t.Any) -> t.Any:
        if isinstance(value, list):
            return [self._told(one) for one in value]
        if not isinstance(value, dict):
            return value
        names = [name for name in self._telling if name in value] if len(value) > _FEW else []
        shown = {name: "***" if value[name] and _PRIVATE.search(name) else self._told(value[name]) for name in names or value}
        return shown | ({"…": f"{len(value) - len(shown)} more fields"} if len(shown) < len(value) else {})


def _line(text: str) -> str:
    """In one line, cut to a length for people."""
    line = " ".join(_COLOURS.sub("", text).split())
    return f"{line[:_CHARACTERS]}… ({len(line)} characters)" if len(line) > _CHARACTERS else line
