# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the Go programs that tests compare with, once: each is a folder of ``tests`` with a go.mod that pins everything.

``python -m tests.build [plane] [machinery] …`` builds what is named (all with ``--all`` or without a name), only when it is
missing, and prints one line for each. A binary lies in ``.cache/<name>/<hash of its sources>/<name>``, other binaries of the same
module beside it. Exit status: 0 built or present, 3 Go is missing, 4 Go is too old, 5 the build failed.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
OTHER_TALOS = ("1.10", "1.11", "1.12", "1.14")
_CONTAINERD = "github.com/containerd/containerd/v2"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """``folder`` below tests; ``packages`` are built, each to a binary named after it. ``stamps`` are variables that get the version of
    a module, as only its own release build would set them: variable -> module. ``first`` was measured on two cores, from nothing."""

    folder: str
    module: str = "go.mod"
    packages: tuple[str, ...] = (".",)
    flags: tuple[str, ...] = ()
    stamps: tuple[tuple[str, str], ...] = ()
    first: str = "about a minute"


_KUBERNETES = (("k8s.io/component-base/version.git", "k8s.io/kubernetes"),)
PROGRAMS: dict[str, Program] = {
    # etcd, API server, controllers, scheduler, kubelet and kubemark of one release in one binary
    "plane": Program("plane", stamps=_KUBERNETES, first="about 7 minutes"),
    # Talos's own code that reads, merges and validates configurations, in the newest and in other releases
    "machinery": Program("machinery"),
    **{f"machinery-{release}": Program("machinery", f"talos-{release}.mod") for release in OTHER_TALOS},
    "schematic": Program("schematic"),  # the Image Factory's numbering
    "kstatus": Program("kstatus", first="some seconds"),  # what Helm and Flux take an object for
    "tailscale-client": Program("tailscale_client", first="some seconds"),  # of the Tailscale API
    "maintenance": Program("maintenance"),  # both ends of Talos's machine API
    "headscale": Program("mesh_real/headscale", packages=("github.com/juanfont/headscale/cmd/headscale",), first="about 2 minutes"),
    # with the tag the daemon is the command line, too, when it is started under the name tailscale
    "tailscaled": Program(
        "mesh_real/tailscale", packages=("tailscale.com/cmd/tailscaled",), flags=("-tags=ts_include_cli",), first="about 2 minutes"
    ),
    "containerd": Program(
        "node_real/containerd",
        packages=tuple(f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "ctr", "containerd-shim-runc-v2")),
        stamps=((f"{_CONTAINERD}/version.Version", _CONTAINERD),),
        first="about 2 minutes",
    ),
    "idle": Program("node_real/idle"),  # what runs in the pods of the node level
    "device-plugin": Program("node_real/device_plugin", first="some seconds"),  # NVIDIA's configuration, the kubelet's API, no GPU
    # last: a handful of tests need it, and all others should not wait for its minutes
    "helm": Program("cluster/helm", packages=("helm.sh/helm/v3/cmd/helm",), first="about 5 minutes"),
}


class CannotBuild(Exception):
    """``status`` is the exit status of the script; the message is one line."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _folder(name: str) -> pathlib.Path:
    return ROOT / "tests" / PROGRAMS[name].folder


def _module(name: str) -> pathlib.Path:
    """The file that names the Go modules of a program: one source may be built with several releases of them."""
    return _folder(name) / PROGRAMS[name].module


def binary(name: str) -> pathlib.Path:
    """Where the (first) binary of the present sources is, or would be."""
    digest = hashlib.sha256()
    module = _module(name)
    for source in (module, module.with_suffix(".sum"), *sorted(module.parent.glob("*.go"))):
        content = source.read_bytes() if source.exists() else b""  # what imports nothing has no sums
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


def _linker(name: str) -> str:
    """Linker flags: small, and the version it reports."""
    flags = "-s -w"
    for variable, module in PROGRAMS[name].stamps:
        version = re.search(rf"{re.escape(module)} (v(\d+)\.(\d+)\S*)", _module(name).read_text())
        if not version:
            raise CannotBuild(f"{name}: its go.mod does not pin {module}.", 5)
        whole = variable.endswith("Version")
        values = {"": version[1]} if whole else {"Version": version[1], "Major": version[2], "Minor": version[3]}
        flags += "".join(f" -X {variable}{key}={value}" for key, value in values.items())
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
        program, fresh = PROGRAMS[name], target.parent / "new"
        fresh.mkdir(exist_ok=True)
        several = len(program.packages) > 1
        # fmt: off
        done = subprocess.run(
            [
                "nice", go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly", f"-modfile={_module(name)}",
                f"-ldflags={_linker(name)}", *program.flags, "-o", f"{fresh}/" if several else str(fresh / name), *program.packages,
            ],
            cwd=_folder(name),
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # fmt: on
        if done.returncode:
            (target.parent / "build.log").write_text(done.stdout)
            last = done.stdout.strip().splitlines()[-1:] or ["no output"]
            raise CannotBuild(f"{name}: the build failed ({last[0].strip()}); all of it is in {target.parent / 'build.log'}.", 5)
        for made in sorted(fresh.iterdir(), key=lambda one: one.name == name):  # the one that is looked for comes last
            made.replace(target.parent / made.name)
        fresh.rmdir()
    return target


def built(name: str, request: pytest.FixtureRequest) -> pathlib.Path:
    """For fixtures: the binary, built now if need be. Without it the test is skipped; with TGP_REQUIRE_PLANE=1 it fails."""
    if not binary(name).exists() and shutil.which("go"):
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.write_line(f"{name}: building with Go, {PROGRAMS[name].first} the first time ...")
    try:
        return build(name)
    except CannotBuild as problem:
        if os.environ.get("TGP_REQUIRE_PLANE") == "1":
            pytest.fail(f"TGP_REQUIRE_PLANE=1, but {problem}", pytrace=False)
        pytest.skip(str(problem))


def main(names: list[str]) -> int:
    status = 0
    for name in PROGRAMS if not names or names == ["--all"] else names:
        if name not in PROGRAMS:
            print(f"{name}: unknown, choose from {', '.join(PROGRAMS)}.", file=sys.stderr)
            return 2
        started, present = time.monotonic(), binary(name).exists()
        if not present and shutil.which("go"):
            print(f"{name}: building with Go, {PROGRAMS[name].first} the first time ...", flush=True)
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
