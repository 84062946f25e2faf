# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make release-check``: the next release as a dry run, step by step, in a copy. The checkout stays as it is.

The copy gets the version and its changelog. The tarball is built and installed into a fresh environment with the documented requirements only,
and playbooks of the installed collection run on the sandbox, from a folder of their own. ``--tag v0.2.0`` checks a release that is already
written, as the release workflow does. ``--write`` writes version and changelog into the checkout and does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

import yaml

from sandbox.running import BIN, ROOT, Running, clean_environment

COLLECTION = Path("ansible_collections") / "tgp" / "gpu"
#: what a user has no use for; a tarball that has it was built from the wrong files
NEVER = {"tests", "molecule", "__pycache__", ".venv", ".cache", ".git", ".github", ".pre-commit-config.yaml"}
NEEDED = {
    *("README.md", "CHANGELOG.rst", "LICENSE", "requirements.txt", "requirements-controller.txt"),
    *("examples", "files", "meta", "playbooks", "plugins", "roles", "sandbox", "schemas"),
}


class Failed(Exception):
    """A step did not do what it should; the message says what happened."""


# ---- versions


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Failed(f"version must be three numbers with dots, got {version}")
    return tuple(int(part) for part in version.split("."))


def next_version(current: str, released: t.Iterable[str]) -> str:
    """The present version as long as it is not released, else the next minor one."""
    if current not in set(released):
        return current
    major, minor, _patch = _numbers(current)
    return f"{major}.{minor + 1}.0"


def version_of(folder: Path) -> str:
    return str(yaml.safe_load((folder / "galaxy.yml").read_text(encoding="utf-8"))["version"])


def released(folder: Path) -> dict[str, t.Any]:
    found: dict[str, t.Any] = yaml.safe_load((folder / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]
    return found


def renumber(folder: Path, version: str) -> list[str]:
    """Write the version into galaxy.yml, the chart, and pages and examples that name the tarball or an image; returns what has changed."""
    before = version_of(folder)
    places = [folder / name for name in ("galaxy.yml", "README.md", "charts/tgp-gpu/Chart.yaml", "image/Containerfile")]
    for below in ("docs", "examples"):
        places += [path for path in sorted((folder / below).rglob("*")) if path.suffix in (".md", ".yml", ".yaml")]
    changed = []
    for path in places:
        old = path.read_text(encoding="utf-8")
        new = re.sub(rf"\b(tgp-gpu[-:]){re.escape(before)}\b", rf"\g<1>{version}", old)
        if path.name in ("galaxy.yml", "Chart.yaml"):
            new = re.sub(r"^(version|appVersion): .*$", rf"\g<1>: {version}", new, flags=re.MULTILINE)
        if new != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path.relative_to(folder).as_posix())
    return changed


# ---- steps


class Ended(Exception):
    """A step failed, and said why; the steps behind it are not done."""


@contextlib.contextmanager
def step(what: str) -> t.Iterator[list[str]]:
    """Prints the step with its outcome. The list takes what is to be said about a success."""
    details: list[str] = []
    began = time.monotonic()
    try:
        yield details
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"  FAILED {what} ({time.monotonic() - began:.0f} s)\n         {str(error).strip()}", flush=True)
        raise Ended from error
    words = f": {', '.join(details)}" if details else ""
    print(f"  OK     {what}{words} ({time.monotonic() - began:.0f} s)", flush=True)


def call(command: t.Sequence[str | Path], cwd: Path, environment: t.Mapping[str, str] | None = None, timeout: float = 600) -> str:
    """What the command printed. Failed with its last lines when it ends with anything but 0."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=timeout,
    )  # fmt: skip
    if done.returncode:
        last = "\n         ".join(done.stdout.strip().splitlines()[-12:])
        raise Failed(f"{Path(str(command[0])).name} ended with {done.returncode}:\n         {last}")
    return done.stdout


def tracked(folder: Path) -> list[str]:
    """Files of the checkout that git has, and new ones that it does not ignore."""
    listed = call(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], folder)
    return [name for name in listed.split("\0") if name and (folder / name).is_file()]


def state(folder: Path) -> str:
    """Changes when a file of the checkout does."""
    digest = hashlib.sha256()
    for name in sorted(tracked(folder)):
        digest.update(name.encode() + b"\0" + hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def write_changelog(folder: Path) -> None:
    """Make the fragments an entry of the version that galaxy.yml has."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    command: list[str | Path] = [BIN / "antsibull-changelog", "release", "--reload-plugins", "--refresh-plugins", "--date", today]
    call(command, folder, {**os.environ, "PATH": path})
    (folder / "changelogs" / ".plugin-cache.yaml").unlink(missing_ok=True)


def check_changelog(folder: Path, version: str) -> str:
    """What is wrong is Failed; else how many entries the version has."""
    if version not in released(folder):
        raise Failed(f"changelogs/changelog.yaml has no release {version}")
    if f"\nv{version}\n" not in (folder / "CHANGELOG.rst").read_text(encoding="utf-8"):
        raise Failed(f"CHANGELOG.rst has no section v{version}")
    if left := [path.name for path in sorted((folder / "changelogs" / "fragments").glob("*.yml"))]:
        raise Failed(f"fragments that the release does not have: {', '.join(left)}")
    call([BIN / "antsibull-changelog", "lint-changelog-yaml", "--strict", "changelogs/changelog.yaml"], folder)
    changes = released(folder)[version].get("changes", {})
    return f"{sum(len(entries) for kind, entries in changes.items() if kind != 'release_summary')} entries"


def check_tarball(tarball: Path) -> str:
    with tarfile.open(tarball) as packed:
        names = [member.name for member in packed if member.isfile()]
    if wrong := sorted(name for name in names if NEVER & set(name.split("/"))):
        raise Failed(f"{len(wrong)} files do not belong into the tarball, such as {', '.join(wrong[:3])}")
    if missing := NEEDED - {name.partition("/")[0] for name in names}:
        raise Failed(f"missing in the tarball: {', '.join(sorted(missing))}")
    return f"{len(names)} files, {tarball.stat().st_size / 1024 / 1024:.1f} MiB"


def build_tarball(source: Path, folder: Path) -> Path:
    """The collection of the folder ``source``, built into ``folder``. Failed when that does not work."""
    environment = {**os.environ, "ANSIBLE_HOME": str(folder)}
    call([BIN / "ansible-galaxy", "collection", "build", "--output-path", folder, source], folder, environment, timeout=120)
    (tarball,) = folder.glob("tgp-gpu-*.tar.gz")
    return tarball


def build(source: Path, wanted: str, tag: str) -> Path:
    """The tarball of the release, made of a copy of the checkout."""
    with step("copy the files of the checkout") as details:
        names = tracked(ROOT)
        for name in names:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
        details.append(f"{len(names)} files")
    if tag:
        with step(f"tag {tag} and galaxy.yml name the same version"):
            version = version_of(source)
            if tag != f"v{version}":
                raise Failed(f"galaxy.yml has version {version}")
    else:
        with step("set the version") as details:
            version = wanted or next_version(version_of(source), released(source))
            if version in released(source):
                raise Failed(f"{version} is released already")
            _numbers(version)
            details += [version, f"in {len(renumber(source, version))} files"]
        with step("antsibull-changelog release") as details:
            details.append(f"{len(list((source / 'changelogs' / 'fragments').glob('*.yml')))} fragments")
            write_changelog(source)
    with step(f"changelog of {version}") as details:
        details.append(check_changelog(source, version))
    with step("ansible-galaxy collection build") as details:
        (source.parents[2] / "built").mkdir()
        tarball = build_tarball(source, source.parents[2] / "built")
        details.append(tarball.name)
        if tarball.name != f"tgp-gpu-{version}.tar.gz":
            raise Failed(f"tgp-gpu-{version}.tar.gz was not built")
    with step("content of the tarball") as details:
        details.append(check_tarball(tarball))
    return tarball


def user_environment(fresh: Path, collections: Path, home: Path) -> dict[str, str]:
    """What a user's shell has after the README's installation, and nothing that this shell has of Ansible and of clouds."""
    kept = clean_environment("PYTHON", "VIRTUAL_ENV", "KUBECONFIG")
    return {
        **kept,
        "PATH": f"{fresh / 'bin'}{os.pathsep}{kept.get('PATH', '')}",
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


def install(tarball: Path, fresh: Path, user: Path, environment: t.Mapping[str, str]) -> Path:
    """The folder of the installed collection. The environment ``fresh`` has ansible-core and the requirements of the collection."""
    pip: list[str | Path] = [BIN / "uv", "pip", "install", "--quiet", "--python", fresh / "bin" / "python"]
    installed = Path(environment["ANSIBLE_COLLECTIONS_PATH"]) / COLLECTION
    with step("a fresh environment with ansible-core") as details:
        call([BIN / "uv", "venv", "--quiet", "--python", sys.executable, fresh], user)
        lines = (ROOT / "requirements-controller.txt").read_text(encoding="utf-8").splitlines()
        call([*pip, *(line for line in lines if line.startswith("ansible-core"))], user)
        details.append(call([fresh / "bin" / "ansible", "--version"], user, environment).partition("\n")[0])
    with step("ansible-galaxy collection install") as details:
        call([fresh / "bin" / "ansible-galaxy", "collection", "install", "--offline", tarball], user, environment)
        details.append(f"tgp.gpu {json.loads((installed / 'MANIFEST.json').read_text())['collection_info']['version']}")
    with step("the requirements of the installed collection, and of its sandbox"):
        call([*pip, "-r", installed / "requirements.txt", "-r", installed / "sandbox" / "requirements.txt"], user)
    return installed


def dry_run(folder: Path, wanted: str, tag: str, out: Path | None) -> None:
    """All steps. ``folder`` is empty and outside of the checkout."""
    tarball = build(folder / "source" / COLLECTION, wanted, tag)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tarball, out)
    fresh, user = folder / "fresh", folder / "user"
    user.mkdir()
    environment = user_environment(fresh, folder / "collections", folder / "home")
    play(user, install(tarball, fresh, user, environment), fresh / "bin" / "python", environment)


def play(user: Path, installed: Path, python: Path, environment: dict[str, str]) -> None:
    """A machine's life by playbooks of the installed collection, called by name from the folder of the user."""
    shutil.copytree(installed / "examples" / "demo", user / "demo")
    shutil.copytree(installed / "examples" / "templates", user / "templates")
    with contextlib.ExitStack() as stack:
        with step("the sandbox of the installed collection"):
            ours = {**environment, "PYTHONPATH": environment["ANSIBLE_COLLECTIONS_PATH"]}
            try:
                sandbox = Running(user / "sandbox", speed=60, python=python, root=installed, shell=ours)
            except RuntimeError as error:
                raise Failed(str(error)) from error
            stack.callback(sandbox.close)
        shell = {**environment, **sandbox.variables}
        program = Path(environment["PATH"].partition(os.pathsep)[0]) / "ansible-playbook"
        for name, *extra in (
            ("prices", "-e", "tgp_gpu_count=1"),
            ("validate", "-e", "tgp_documents=demo"),
            ("provision", "-e", "tgp_documents=demo"),
            ("status", "-e", "tgp_documents=demo"),
            ("destroy", "-e", "tgp_documents=demo", "-e", "tgp_everything=true", "-e", "tgp_force=true"),
        ):
            with step(f"ansible-playbook tgp.gpu.{name} {' '.join(extra)}") as details:
                printed = call([program, f"tgp.gpu.{name}", *extra], user, shell)
                details.append(_recap(printed))
        with step("nothing is left on the sandbox") as details:
            totals = sandbox.world()["totals"]
            if left := {kind: totals[kind] for kind in ("instances", "devices", "keys") if totals[kind]}:
                raise Failed(f"left: {left}")


def _recap(printed: str) -> str:
    found = re.search(r"^localhost\s+: (ok=\d+\s+changed=\d+)", printed, re.MULTILINE)
    if found is None:
        raise Failed("no recap was printed")
    return " ".join(found[1].split())


def main(arguments: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "version", nargs="?", default="", help="default: the version of galaxy.yml, or the next minor one if that is released"
    )
    parser.add_argument(
        "--tag", default="", help="check the release that the tag names; its version and changelog must be in place"
    )
    parser.add_argument("--out", type=Path, help="a folder that gets the tarball")
    parser.add_argument("--write", action="store_true", help="write version and changelog into this checkout, and nothing else")
    options = parser.parse_args(arguments)
    if options.write:
        return write(options.version)
    before, done = state(ROOT), False
    print(f"release {options.tag or options.version or 'dry run'}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tgp-release-") as folder, contextlib.suppress(Ended):
        dry_run(Path(folder).resolve(), options.version, options.tag, options.out)
        done = True
    unchanged = state(ROOT) == before
    print(f"  {'OK    ' if unchanged else 'FAILED'} the checkout is as it was", flush=True)
    return int(not done or not unchanged)


def write(version: str) -> int:
    try:
        wanted = version or next_version(version_of(ROOT), released(ROOT))
        _numbers(wanted)
        if wanted in released(ROOT):
            raise Failed(f"{wanted} is released already")
        print(f"version {wanted}: {', '.join(renumber(ROOT, wanted))}")
        write_changelog(ROOT)
        print(f"changelog: {check_changelog(ROOT, wanted)}")
    except Failed as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
