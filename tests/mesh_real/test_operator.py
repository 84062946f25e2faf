# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's own chart and source know the values and annotations that role prereqs and tailscale_expose write."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import (
    TAILSCALE_EXPOSE_ANNOTATION,
    TAILSCALE_HOSTNAME_ANNOTATION,
    TAILSCALE_TAGS_ANNOTATION,
)

HERE = pathlib.Path(__file__).resolve().parent
OPERATOR = "cmd/k8s-operator"


@pytest.fixture(scope="module")
def source() -> pathlib.Path:
    """Tailscale's module as Go unpacks it, without building anything."""
    go = shutil.which("go")
    if not go:
        pytest.skip("tailscale: not built, Go is not installed.")
    done = subprocess.run(
        [go, "mod", "download", "-json", "tailscale.com"],
        cwd=HERE / "tailscale",
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"tailscale: its source cannot be had here: {done.stderr.strip()[-200:]}")
    return pathlib.Path(json.loads(done.stdout)["Dir"])


def same_form(ours: t.Any, theirs: t.Any, path: str = "") -> list[str]:
    """What of our values the chart does not have, or has in another form."""
    if not isinstance(ours, dict):
        fits = (
            isinstance(theirs, list)
            if isinstance(ours, str) and "_tags }}" in ours and "join" not in ours
            else isinstance(theirs, str)
        )
        return [] if fits else [f"{path} is {type(theirs).__name__} there"]
    found = [f"{path}.{key}" for key in ours if key not in theirs]
    return found + [line for key in ours if key in theirs for line in same_form(ours[key], theirs[key], f"{path}.{key}")]


def test_S0_10_the_chart_has_every_value_of_ours_in_the_same_form(source: pathlib.Path) -> None:
    chart = source / OPERATOR / "deploy" / "chart"
    ours = yaml.safe_load((HERE.parents[1] / "roles" / "prereqs" / "vars" / "main.yml").read_text())
    theirs = yaml.safe_load((chart / "values.yaml").read_text())
    wanted = {**ours["prereqs_own_values"], **ours["prereqs_oauth"], "loginServer": "https://hs.example"}
    assert same_form(wanted, theirs) == []
    secret = (chart / "templates" / "oauth-secret.yaml").read_text()
    assert "name: operator-oauth" in secret and "client_id:" in secret and "client_secret:" in secret


def test_S0_11_the_operator_reads_our_annotations(source: pathlib.Path) -> None:
    code = "\n".join(path.read_text() for path in (source / OPERATOR).glob("*.go") if not path.name.endswith("_test.go"))
    assert [
        one
        for one in (TAILSCALE_EXPOSE_ANNOTATION, TAILSCALE_HOSTNAME_ANNOTATION, TAILSCALE_TAGS_ANNOTATION)
        if f'"{one}"' not in code
    ] == []
