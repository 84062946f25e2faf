# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the Go programs that tests compare with: the real control plane, Talos's own configuration checker (in the newest and, as
``machinery-1.10`` …, in other releases), the Image Factory's own numbering of schematics,
and both ends of Talos's machine API in maintenance mode.

``tests/plane/build.py [plane] [machinery] …`` builds what is named (all with ``--all`` or without a name), only when it is
missing, and prints one line for each. A binary lies in ``.cache/<name>/<hash of its sources>/<name>``. Exit status: 0 built or
present, 3 Go is missing, 4 Go is too old, 5 the build failed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OTHER_TALOS = ("1.10", "1.11", "1.12", "1.14")
NAMES = ("plane", "machinery", *(f"machinery-{release}" for release in OTHER_TALOS), "schematic", "maintenance")
# Measured on two cores: a first build downloads and compiles all of Kubernetes.
FIRST_BUILD = {name: "about 7 minutes" if name == "plane" else "about a minute" for name in NAMES}


class CannotBuild(Exception):
    """``status`` is the exit status of the script; the message is one line."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _module(name: str) -> pathlib.Path:
    """The file that names the Go modules of a program: one source may be built with several releases of them."""
    folder, _dash, release = name.partition("-")
    return ROOT / "tests" / folder / (f"talos-{release}.mod" if release else "go.mod")


def _sources(name: str) -> list[pathlib.Path]:
    module = _module(name)
    return [module, module.with_suffix(".sum"), *sorted(module.parent.glob("*.go"))]


def binary(name: str) -> pathlib.Path:
    """Where the binary of the present sources is, or would be."""
    digest = hashlib.sha256()
    for source in _sources(name):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode() + content)
    machine = os.uname()
    return ROOT / ".cache" / name / f"{digest.hexdigest()[:16]}-{machine.sysname}-{machine.machine}".lower() / name


def _wanted(name: str) -> tuple[int, ...]:
    found = re.search(r"^go (\d+)\.(\d+)", _module(name).read_text(), re.M)
    if not found:
        raise CannotBuild(f"{name}: its go.mod names no Go version.", 5)
    return tuple(int(part) for part in found.groups())


def _go(name: str) -> str:
    go = shutil.which("go")
    wanted = _wanted(name)
    minimum = ".".join(map(str, wanted))
    if not go:
        raise CannotBuild(f"{name}: not built, Go {minimum} or newer is not installed.", 3)
    # GOTOOLCHAIN=local: an old Go must say so, and not fetch another one behind the user's back.
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=env, cwd="/").stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if not found or tuple(int(part) for part in found.groups()) < wanted:
        raise CannotBuild(f"{name}: not built, it needs Go {minimum} or newer and this is {version or 'unknown'}.", 4)
    return go


def _flags(name: str) -> str:
    """Linker flags: small, and for Kubernetes the version it reports, which only its own release build would set."""
    flags = "-s -w"
    version = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)", _module(name).read_text())
    if version:
        for key, value in zip(("gitVersion", "gitMajor", "gitMinor"), version.groups(), strict=True):
            flags += f" -X k8s.io/component-base/version.{key}={value}"
    return flags


def build(name: str) -> pathlib.Path:
    """The binary, built first if it is missing. Raises CannotBuild. Two builds at once: the second waits and uses the first's."""
    target = binary(name)
    if target.exists():
        return target
    go = _go(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        fresh = target.with_suffix(".new")
        done = subprocess.run(
            [
                "nice",
                go,
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-mod=readonly",
                f"-modfile={_module(name)}",
                f"-ldflags={_flags(name)}",
                "-o",
                str(fresh),
                ".",
            ],
            cwd=_module(name).parent,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            (target.parent / "build.log").write_text(done.stdout)
            last = done.stdout.strip().splitlines()[-1:] or ["no output"]
            raise CannotBuild(f"{name}: the build failed ({last[0].strip()}); all of it is in {target.parent / 'build.log'}.", 5)
        fresh.replace(target)
    return target


def main(names: list[str]) -> int:
    status = 0
    for name in NAMES if not names or names == ["--all"] else names:
        if name not in NAMES:
            print(f"{name}: unknown, choose from {', '.join(NAMES)}.", file=sys.stderr)
            return 2
        started, present = time.monotonic(), binary(name).exists()
        if not present and shutil.which("go"):
            print(f"{name}: building with Go, {FIRST_BUILD[name]} the first time ...", flush=True)
        try:
            path = build(name)
        except CannotBuild as problem:
            print(problem, file=sys.stderr)
            status = status or problem.status
            continue
        spent = "already built" if present else f"built in {time.monotonic() - started:.0f} s"
        print(f"{name}: {spent}, {path.stat().st_size / 2**20:.0f} MiB, {path.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
