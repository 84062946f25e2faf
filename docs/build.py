# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the site: the pages of this repository where they are, and a page for each module, role and plugin. ``make docs`` runs it.

The site goes to .cache/docs/html. The pages are copied to .cache/docs/source first, at the same paths, so that the links between them work
there as they do on a forge. A second build reads only what changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CACHE = ROOT / ".cache" / "docs"
SOURCE = CACHE / "source"
HTML = CACHE / "html"
COLLECTION = SOURCE / "docs" / "reference" / "collection"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.rst", "sandbox/README.md")
_LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)|<img[^>]* src=\"([\w./-]+)\"")
# labels of Ansible's own documentation that the generated pages refer to
_ANSIBLE = {
    "action_plugins": ("Action plugins", "plugins/action.html"),
    "ansible_collections.ansible.builtin.async_status_module": (
        "ansible.builtin.async_status",
        "collections/ansible/builtin/async_status_module.html",
    ),
    "ansible_configuration_settings": ("Configuration settings", "reference_appendices/config.html"),
    "common_return_values": ("Common return values", "reference_appendices/common_return_values.html"),
}


def pages() -> dict[str, Path]:
    """Path on the site → file: the pages, and the files of the repository that they link or show."""
    found = {name: ROOT / name for name in OUTSIDE if (ROOT / name).is_file()}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and path.suffix in (".md", ".png", ".svg"):
            found[path.relative_to(ROOT).as_posix()] = path
    for path in [path for path in found.values() if path.suffix == ".md"]:
        for link, image in _LINK.findall(path.read_text(encoding="utf-8")):
            target = (path.parent / (link or image)).resolve()
            if target.is_file() and target.is_relative_to(ROOT):
                found.setdefault(target.relative_to(ROOT).as_posix(), target)
    return found


def mirror(wanted: dict[str, Path]) -> None:
    """Files that are the same stay as they are, so that Sphinx does not read them again."""
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and not path.is_relative_to(COLLECTION) and path.relative_to(SOURCE).as_posix() not in wanted:
            path.unlink()
    for name, path in wanted.items():
        target = SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.write_bytes(content)


def collection() -> None:
    """The pages of modules, roles and plugins, unless nothing that they are made from has changed."""
    folders = ("plugins/modules", "plugins/doc_fragments", "plugins/inventory", "plugins/lookup", "roles", "meta")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".yml")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*files, ROOT / "galaxy.yml", Path(__file__)])).hexdigest()
    stamp = CACHE / "collection.sha256"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest and COLLECTION.is_dir():
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(COLLECTION, ignore_errors=True)
    COLLECTION.mkdir(parents=True, mode=0o755)
    settings = CACHE / "antsibull-docs.cfg"
    settings.write_text('collection_url = {\n    * = "index.html"\n}\n', encoding="utf-8")
    command = [str(BIN / "antsibull-docs"), "--config-file", str(settings), "collection", "--use-current", "--squash-hierarchy"]
    command += ["--no-add-antsibull-docs-version", "--fail-on-error", "--dest-dir", str(COLLECTION), "tgp.gpu"]
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # it starts ansible-doc
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    title = "Modules, roles and plugins"
    index = COLLECTION / "index.rst"
    text = re.sub(r"^Tgp\.Gpu\n=+$", f"{title}\n{'=' * len(title)}", index.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^    (\w+)_(module|role|inventory|lookup)$", r"    \1 <\1_\2>", text, flags=re.MULTILINE)
    variables = "\n.. toctree::\n    :hidden:\n\n    environment_variables\n    ansible\n"
    index.write_text(text + variables, encoding="utf-8")
    head = "Ansible's own documentation"
    lines = [head, "=" * len(head), "", "The pages of modules refer to these pages of docs.ansible.com.", ""]
    for label, (words, url) in _ANSIBLE.items():
        lines += [f".. _{label}:", "", words, "-" * len(words), "", f"https://docs.ansible.com/ansible/latest/{url}", ""]
    (COLLECTION / "ansible.rst").write_text("\n".join(lines), encoding="utf-8")
    stamp.write_text(digest, encoding="utf-8")


def main() -> int:
    SOURCE.mkdir(parents=True, exist_ok=True)
    mirror(pages())
    collection()
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto", "-c", str(ROOT / "docs")]
    code = subprocess.run([*command, "-d", str(CACHE / "doctrees"), str(SOURCE), str(HTML)], check=False).returncode
    if code == 0:
        first = '<!doctype html><meta charset="utf-8"><title>tgp.gpu</title><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (HTML / "index.html").write_text(first, encoding="utf-8")
        print(f"the site is in {HTML.relative_to(ROOT)}: open {HTML.relative_to(ROOT)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
