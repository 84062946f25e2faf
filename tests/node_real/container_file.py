# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""image/Containerfile carried out without a daemon for containers: Debian by mmdebstrap, each RUN in it by chroot, and layers by tar.

All up to the collection is a layer that is built once and cached; it needs root, the packages of Debian and those of Python.
``python -m tests.node_real.container_file`` builds it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t

from tests.build import ROOT, CannotBuild
from tests.release import build_tarball

from . import debian

FILE = ROOT / "image" / "Containerfile"
_COLLECTION = "tgp-gpu-"
_FROM = re.compile(r"^docker\.io/library/debian:([a-z]+)-slim$")
_PASSED = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")  # how packages are fetched from here
_LEAN = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("man", "locale", "doc")]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One instruction with its words."""

    name: str
    words: str


def steps(text: str) -> list[Step]:
    """Of a Containerfile without continued lines."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Step(*line.split(" ", 1)) for line in lines]


def configuration(found: t.Sequence[Step]) -> dict[str, t.Any]:
    """What a container of the image is started with."""
    environment = [step.words for step in found if step.name == "ENV"]
    single = {step.name: step.words for step in found}
    return {"Env": environment, "User": single["USER"], "WorkingDir": single["WORKDIR"], "Cmd": json.loads(single["CMD"])}


def layers(*, fetch: bool = True) -> tuple[list[pathlib.Path], dict[str, t.Any]]:
    """The two layers as tar files, the second with this checkout's collection, and the configuration. Raises CannotBuild, also for a
    first layer that is not cached and may not be fetched."""
    if os.geteuid() != 0:
        raise CannotBuild("image: not built, mmdebstrap and chroot need root here.", 3)
    found = steps(FILE.read_text(encoding="utf-8"))
    begin = next(number for number, step in enumerate(found) if step.name == "COPY" and step.words.startswith(_COLLECTION))
    base = _base(found[:begin], fetch)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        root, context = work / "root", work / "context"
        root.mkdir()
        context.mkdir()
        subprocess.run(["tar", "-C", str(root), "-xf", str(base)], check=True)
        build_tarball(ROOT, context)
        before = _inventory(root)
        _carry_out(found[begin:], root, context, _environment(found))
        own = base.with_name("collection.tar")
        changed = sorted(path for path, state in _inventory(root).items() if before.get(path) != state)
        subprocess.run(
            ["tar", "-C", str(root), "--no-recursion", "--null", "-T", "-", "-cf", str(own)],
            input="\0".join(changed), text=True, check=True,
        )  # fmt: skip
    return [base, own], configuration(found)


def _environment(found: t.Sequence[Step]) -> dict[str, str]:
    return dict(step.words.split("=", 1) for step in found if step.name == "ENV")


def _base(found: list[Step], fetch: bool) -> pathlib.Path:
    content = "\n".join(f"{step.name} {step.words}" for step in found)
    for step in found:
        if step.name == "COPY":
            content += "".join((ROOT / name).read_text(encoding="utf-8") for name in step.words.split()[:-1])
    place = ROOT / ".cache" / "image" / hashlib.sha256(content.encode()).hexdigest()[:16] / "base.tar"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            if not fetch:
                raise CannotBuild("image: not built, its packages were not fetched (python -m tests.node_real.container_file).", 5)
            _make_base(found, place)
    return place


def _make_base(found: list[Step], place: pathlib.Path) -> None:
    suite = _FROM.match(found[0].words)
    if suite is None:
        raise CannotBuild(f"image: not built, {found[0].words} is not Debian.", 5)
    tool = debian.tree(("mmdebstrap",), "usr/bin/mmdebstrap") / "usr" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        done = subprocess.run(
            [
                "perl", str(tool / "mmdebstrap"), "--mode=root", "--variant=minbase", "--format=directory",
                '--aptopt=Acquire::Languages "none"', *_LEAN, suite[1], str(root),
            ],
            env={**os.environ, "PATH": f"{tool}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["no words"])[-1]
            raise CannotBuild(f"image: not built, Debian cannot be fetched ({last}).", 5)
        _carry_out(found[1:], root, ROOT, {})
        subprocess.run(["tar", "-C", str(root), "-cf", str(place.with_suffix(".new")), "."], check=True)
    place.with_suffix(".new").replace(place)


def _carry_out(found: t.Sequence[Step], root: pathlib.Path, context: pathlib.Path, environment: dict[str, str]) -> None:
    for step in found:
        if step.name == "COPY":
            *sources, target = step.words.split()
            (root / target.strip("/")).mkdir(parents=True, exist_ok=True)
            for source in sources:
                for path in glob.glob(str(context / source)):
                    shutil.copy(path, root / target.strip("/"))
        elif step.name == "RUN":
            _run(root, step.words, environment)


def _run(root: pathlib.Path, script: str, environment: dict[str, str]) -> None:
    """With this machine's way to packages (resolver, authorities, settings of pip), which stays outside of the image."""
    lent = {"/etc/resolv.conf": "etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt": "run/authorities.crt"}
    mounts = []
    for path, place in lent.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).touch()
        mounts.append(f"mount --bind {path} {root / place}")
    inside = " && ".join([*mounts, f"mount -t proc proc {root}/proc", f'exec chroot {root} /bin/sh -c "$0"'])
    passed = {name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED)}
    plain = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, script],
        env={**plain, **passed, "PIP_CERT": "/run/authorities.crt", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    for place in lent.values():
        if (root / place).exists() and not (root / place).stat().st_size:
            (root / place).unlink()
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no words"])[-1]
        raise CannotBuild(f"image: not built, {script.split()[0]} failed ({last[:200]}).", 5)


def _inventory(root: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Every file, link and folder with what tells that it was changed."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = pathlib.Path(folder, name)
            state = path.lstat()
            found[str(path.relative_to(root))] = (0 if path.is_dir() else state.st_mtime_ns, 0 if path.is_dir() else state.st_size)
    return found


if __name__ == "__main__":
    try:
        made, _configuration = layers()
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.status)
    for layer in made:
        print(f"{layer.relative_to(ROOT)}: {layer.stat().st_size / 2**20:.0f} MiB")
