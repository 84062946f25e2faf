# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the real mesh that tests use: headscale, and Tailscale's daemon with its command line in one binary.

``python -m tests.mesh_real.build`` builds what is missing and prints one line for each. A binary lies in
``.cache/<name>/<hash of its sources>/<name>``. Exit status as tests/plane/build.py's.
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

from tests.plane.build import CannotBuild

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache"
PACKAGES = {"headscale": "github.com/juanfont/headscale/cmd/headscale", "tailscale": "tailscale.com/cmd/tailscaled"}
# with it the daemon is the command line, too, when it is started under the name tailscale
TAGS = {"tailscale": ("-tags=ts_include_cli",)}
FIRST_BUILD = "about 2 minutes"  # each, on two cores


def binary(name: str) -> pathlib.Path:
    """Where the binary of the pinned sources is, or would be."""
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum", "tools.go"):
        digest.update((HERE / name / source).read_bytes())
    machine = os.uname()
    return CACHE / name / f"{digest.hexdigest()[:16]}-{machine.sysname}-{machine.machine}".lower() / name


def _go(name: str) -> str:
    wanted = re.search(r"^go (\d+)\.(\d+)", (HERE / name / "go.mod").read_text(), re.M)
    if not wanted:
        raise CannotBuild(f"{name}: its go.mod names no Go version.", 5)
    minimum = ".".join(wanted.groups())
    go = shutil.which("go")
    if not go:
        raise CannotBuild(f"{name}: not built, Go {minimum} or newer is not installed.", 3)
    env = {**os.environ, "GOTOOLCHAIN": "local"}  # an old Go must say so, and not fetch another one behind the user's back
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=env, cwd="/").stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if not found or tuple(map(int, found.groups())) < tuple(map(int, wanted.groups())):
        raise CannotBuild(f"{name}: not built, it needs Go {minimum} or newer and this is {version or 'unknown'}.", 4)
    return go


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
        flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=-s -w", *TAGS.get(name, ())]
        done = subprocess.run(
            ["nice", go, "build", *flags, "-o", str(fresh), PACKAGES[name]],
            cwd=HERE / name,
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


def main() -> int:
    status = 0
    for name in PACKAGES:
        started, present = time.monotonic(), binary(name).exists()
        try:
            path = build(name)
        except CannotBuild as problem:
            print(problem, file=sys.stderr)
            status = status or problem.status
            continue
        spent = "already built" if present else f"built in {time.monotonic() - started:.0f} s"
        print(f"{name}: {spent}, {path.stat().st_size / 2**20:.0f} MiB, {path.relative_to(CACHE.parent)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
