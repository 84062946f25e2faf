# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the playbooks. Each is ``tgp_`` and a word; version 0.1 had the words alone, which still count with ``-e``."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing as t
from pathlib import Path

from .errors import lazy

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

PREFIX = "tgp_"
OLD_NAMES_END = "0.3.0"
# every word that a playbook takes; each playbook names its own in the play's variable tgp_variables
WORDS = frozenset(
    {
        "accept_problems", "accept_refused", "address", "allow_experimental", "apply", "archive", "bench_image", "bench_max_pairs",
        "bench_namespace", "bench_port", "bench_seconds", "bench_start_timeout", "bundle", "cache", "class", "clouds", "deep", "documents",
        "everything", "force", "format", "from_node", "from_store", "full_interval", "generation", "gpu_count", "gpu_test",
        "gpu_test_timeout", "gpu_type", "history", "history_path", "id", "image_arch", "image_bucket", "image_cluster_id", "image_keep",
        "image_min_age", "image_policy", "image_project", "image_protect", "image_source", "image_timeout", "interval", "lane", "lanes",
        "loop", "machine", "manifest", "max_cost", "max_price", "min_gpu_memory", "mode", "node", "nodes", "older_than_days", "options",
        "path", "plan", "pod", "pool", "power_price", "power_watts", "provider", "provider_bills", "purchase_price", "reason", "refresh",
        "region", "render_to", "rent", "replicas", "schematic_id", "since", "spot", "ssh_become", "ssh_config", "ssh_connection",
        "ssh_port", "ssh_private_key", "ssh_timeout", "ssh_user", "state", "summary", "talos_version", "talosconfig", "time_zone",
        "to_node", "to_store", "until", "wait",
    }
)  # fmt: skip
ARTIFACT = "tgp_run"  # the custom stat of a run, which AWX hands to the next job of a workflow as an extra variable
# variables of roles begin so, and belong to whoever runs the role
ROLES = frozenset(
    {
        "apply", "awx", "check", "device_plugin", "hub", "join", "join_kubelet", "launch", "loop", "migrate", "node_drain", "node_join",
        "node_labels", "plan", "prereqs", "prices", "report", "scale", "status", "takeover", "talos_config", "teardown",
    }
)  # fmt: skip
AWX_JOB = "awx_job_id"  # the extra variables of a job of AWX have this one, and more that begin with one of AWX_SAYS
AWX_SAYS = ("awx_", "tower_")
_LIKE = 0.8  # pol is like pool, tool is not
_LIKE_A_ROLES = 0.88  # of whole names, which share their beginning
_WORD_OF = {
    "classes": "class",
    "manifests": "manifest",
    "name": "machine",
    "names": "machine",
    "pools": "pool",
    "all": "everything",
    "save_to": "plan",
    "file": "plan",
    "arch": "image_arch",
    "project": "image_project",
    "bucket": "image_bucket",
    "source": "image_source",
    "keep": "image_keep",
    "min_age": "image_min_age",
    "protect": "image_protect",
    "timeout": "image_timeout",
    "image": "bench_image",
    "seconds": "bench_seconds",
    "port": "bench_port",
    "max_pairs": "bench_max_pairs",
    "start_timeout": "bench_start_timeout",
    "namespace": "bench_namespace",
}


@dataclasses.dataclass(frozen=True)
class Check:
    """What is wrong with the extra variables of a run, and which of them have an old name."""

    problems: tuple[str, ...] = ()
    old: tuple[str, ...] = ()


def source(word: str, variables: t.Container[str], extra: t.Container[str], *, extra_only: bool = False) -> str:
    """The variable that gives the word its value: ``tgp_<word>`` from anywhere, or the old name with ``-e``; empty for none."""
    name = f"{PREFIX}{word}"
    if name in (extra if extra_only else variables):
        return name
    return word if word in extra else ""


def check(extra: t.Collection[str], words: t.Collection[str]) -> Check:
    """Extra variables of a playbook that takes ``words``. Names that are neither ours nor like ours are ignored, and so are those that AWX
    gives each of its jobs: they cannot be distinguished from those of the role awx."""
    problems, old = [], []
    names = [f"{PREFIX}{word}" for word in words]
    for name in sorted(extra):
        if name in names or name == ARTIFACT or (AWX_JOB in extra and name.startswith(AWX_SAYS)):
            continue
        if name in words:
            old.append(name)
        elif name.removeprefix(PREFIX) in WORDS and (name.startswith(PREFIX) or not _like(name, words)):
            problems.append(f"{name} means nothing to this playbook, which takes {', '.join(names)}.")
        elif _of_a_role(name):
            role_names = role_variables()
            like_a_roles = [] if name in role_names else difflib.get_close_matches(name, role_names, 1, _LIKE_A_ROLES)
            if like_a_roles:
                problems.append(f"{name} is not a variable of a role. Did you mean {like_a_roles[0]}?")
        else:
            like = _like(name, words)
            if like:
                problems.append(f"{name} is not a variable of this playbook. Did you mean {like}?")
            elif name.startswith(PREFIX):
                problems.append(f"{name} is not a variable of this playbook, which takes {', '.join(names)}.")
    return Check(tuple(problems), tuple(old))


def renamed(name: str) -> str:
    """The warning about an old name."""
    return f"The variable {name} is called {PREFIX}{name} now, and works under that name from the inventory, too."


def called(options: t.Iterable[str], words: t.Collection[str]) -> dict[str, str]:
    """Module options to the variables under which a user of the playbook gives them."""
    words_by_option = {option: _WORD_OF.get(option, option) for option in options}
    return {option: f"{PREFIX}{word}" for option, word in words_by_option.items() if word in words}


@functools.cache
def role_variables() -> frozenset[str]:
    """The variables that the collection's roles document; none where the roles are not beside the plugins."""
    specs = Path(__file__).resolve().parents[3].glob("roles/*/meta/argument_specs.yml")
    read = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in specs)
    return frozenset(name for spec in read for entry in spec["argument_specs"].values() for name in entry.get("options", {}))


def _of_a_role(name: str) -> bool:
    return any(name.startswith(f"{role}_") for role in ROLES)


def _like(name: str, words: t.Collection[str]) -> str:
    """The variable that was probably meant, by its whole name or by its word."""
    names = {**{word: f"{PREFIX}{word}" for word in words}, **{f"{PREFIX}{word}": f"{PREFIX}{word}" for word in words}}
    matches = difflib.get_close_matches(name, names, 1, _LIKE) or difflib.get_close_matches(
        name.removeprefix(PREFIX), words, 1, _LIKE
    )
    return names[matches[0]] if matches else ""
