# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release tables: what each Talos release takes of NVIDIA's drivers, when the tables are out of date, and what they say of it (B-19)."""

from __future__ import annotations

import re
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.extensions import disagreements
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.nvidia import OPEN, PROPRIETARY, driver_for, mismatches
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases import staleness
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases.staleness import Product, SeenVersion, seen_driver
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases.tables import BUILT_IN, OLDEST, TRACKS, text_of
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.runtime_rules import CRI_PART, containerd_rules
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import check

from tests.fixtures.talos_nodes import make

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "releases.md"
RELEASES = ("1.10.9", "1.11.6", "1.12.11", "1.13.9", "1.14.1", "1.15.0")
DAY = max(origin.as_of for origin in BUILT_IN.origins)


def image(kind: str, track: str) -> list[str]:
    return [f"siderolabs/{kind}-{track}", f"siderolabs/nvidia-container-toolkit-{track}"]


def refusal(card: str, track: str, release: str) -> str:
    """Of the driver that is asked for, "" when it is taken; then an image with it drives the card, too."""
    try:
        driver = driver_for([card], release, track)
    except InvalidInput as error:
        return str(error)
    assert mismatches(driver.extensions(), [card], release) == [] == disagreements(driver.extensions())
    return ""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("card", ["P100", "A100", "B200"])
def test_s4_29_every_card_track_and_release(card: str, track: str, release: str) -> None:
    """By the branches alone: 580 is the last that knows Pascal, 570 the first that knows Blackwell. No name says which driver is newer."""
    branch = BUILT_IN.drivers((1, int(release.split(".")[1]))).get(track)
    said = refusal(card, track, release)
    if branch is None:
        assert track == "new-feature" and "no driver track new-feature" in said and "lts, production" in said
    elif card == "P100" and branch > 580:
        assert f"driver {branch}, which no longer knows P100" in said
    elif card == "B200" and branch < 570:
        assert f"driver {branch}, which does not know B200 yet" in said
    else:
        assert said == ""


@pytest.mark.parametrize(("card", "kind"), [("P100", OPEN), ("V100", OPEN), ("B200", PROPRIETARY)])
@pytest.mark.parametrize("release", RELEASES)
def test_s4_29_the_wrong_kernel_modules_are_refused_with_the_reason(card: str, kind: str, release: str) -> None:
    [said] = mismatches(image(kind, "lts"), [card], release)[:1]
    assert (
        said.startswith(f"{card} (")
        and f"needs {OPEN if kind == PROPRIETARY else PROPRIETARY}, and the image has {kind}-lts." in said
    )


def test_s4_29_production_is_not_always_the_newer_driver() -> None:
    drivers = BUILT_IN.drivers((1, 12))
    assert drivers["production"] < drivers["lts"]
    assert driver_for(["P100"], "1.12.11", "production").branch == 570  # an old card is driven by both
    assert driver_for(["A100"], "1.12.11").track == "production" and driver_for(["P100"], "1.12.11").track == "lts"


@pytest.mark.parametrize("release", ["1.9.6", "1.16.0"])
def test_a_release_without_a_row_is_refused_and_the_rows_are_named(release: str) -> None:
    for said in (refusal("A100", "", release), *mismatches(image(OPEN, "production"), ["A100"], release)):
        assert (
            f"Talos {release} has no row in the release tables" in said and "from 1.10 to 1.15" in said and "release_tables" in said
        )
    assert mismatches(["siderolabs/tailscale"], [], release) == []  # without NVIDIA's extensions there is nothing to know


def test_s4_29_new_feature_is_a_track_of_talos_115_and_taken_by_its_name_alone() -> None:
    for card in ("A100", "B200"):
        assert driver_for([card], "1.15.0").track == "production"
        assert driver_for([card], "1.15.0", "new-feature").branch == 615
    mixed = [*image(OPEN, "new-feature")[:1], *image(OPEN, "lts")[1:]]
    assert any("two tracks, lts and new-feature" in said for said in disagreements(mixed))
    [said] = mismatches(image(OPEN, "new-feature"), ["A100"], "1.14.0")
    assert said.startswith("Talos 1.14.0 has no driver track new-feature; it has lts, production.")
    [said] = mismatches(image(OPEN, "beta"), ["A100"], "1.15.0")  # a driver all the same, of a track that nobody knows
    assert "no driver track beta" in said


def test_B19_the_page_shows_the_tables_as_they_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if re.match(r"\| 1\.\d", line)
    ]
    rows = [
        (
            text_of(release),
            f"1.{row.kubernetes[0]} to 1.{row.kubernetes[1]}",
            *(str(row.drivers.get(track, "-")) for track in ("lts", "production", "new-feature")),
            row.seen,
        )
        for release, row in BUILT_IN.releases.items()
    ]
    assert shown == rows and min(BUILT_IN.releases) == OLDEST
    assert [f"| {one.table} | {one.as_of} | {one.source} |" in text for one in BUILT_IN.origins] == [True] * 3


@pytest.mark.parametrize(("days", "old"), [(0, 0), (120, 0), (121, 3), (400, 3)])
def test_B19_a_table_is_told_when_it_is_older_than_120_days(days: int, old: int) -> None:
    said = staleness.warnings(BUILT_IN, [], DAY + timedelta(days=days))
    assert len(said) == old and all(f"is of {DAY}, {days} days ago" in one and "Upgrade the collection" in one for one in said)


SIGHTINGS: list[tuple[t.Any, str]] = [
    (SeenVersion(Product.TALOS, "v1.15.0-beta.0", "node a"), ""),
    (SeenVersion(Product.TALOS, "1.16.0-alpha.1", "node a"), "node a: Talos 1.16 is newer than the newest in the tables, 1.15."),
    (SeenVersion(Product.TALOS, "1.15.2", "class b"), "class b: The row of Talos 1.15 is of 1.15.0-beta.0"),
    (SeenVersion(Product.TALOS, "1.13.40", "node a"), ""),
    (SeenVersion(Product.TALOS, "main", "node a"), ""),
    (SeenVersion(Product.KUBERNETES, "v1.38.1", "the API server"), ""),
    (SeenVersion(Product.KUBERNETES, "v1.39.0", "the API server"), "the API server: Kubernetes 1.39 is newer than the newest in the"),
    (seen_driver("nvidia-open-gpu-kernel-modules-lts", "580.178.04-v1.13.9", "1.13.9", "node a"), ""),
    (seen_driver("siderolabs/nonfree-kmod-nvidia-production", "600.1-v1.13.9", "1.13.9", "class b"),
     "class b: Track production of Talos 1.13 has driver 600, the tables say 595."),
    (seen_driver("nvidia-open-gpu-kernel-modules-new-feature", "615.1-v1.14.3", "1.14.3", "node a"),
     "node a: Talos 1.14 has a driver track new-feature that the tables do not know."),
    (seen_driver("nvidia-open-gpu-kernel-modules-lts", "700.1-v1.20.0", "1.20.0", "node a"), ""),  # the release is told, not its drivers
]  # fmt: skip


@pytest.mark.parametrize(("seen", "words"), SIGHTINGS)
def test_B19_what_is_newer_than_the_tables_is_told_with_its_place(seen: t.Any, words: str) -> None:
    said = staleness.warnings(BUILT_IN, [seen, seen], DAY)
    assert len(said) == bool(words) and all(one.startswith(words) and "release_tables" in one for one in said)


def test_B19_what_is_no_driver_is_no_sighting() -> None:
    assert seen_driver("tailscale", "1.102.2", "1.13.9", "node a") is None
    assert seen_driver("nvidia-open-gpu-kernel-modules-lts", "", "1.13.9", "node a") is None


PART = """
[plugins]
  [plugins."{section}"]
    [plugins."{section}".containerd]
      default_runtime_name = "{name}"
"""
SECTION = "io.containerd.cri.v1.runtime"


def with_part(content: str) -> list[t.Any]:
    """A configuration of the seed's form: the part file among the files of the machine."""
    documents = build(make())
    config = documents[0]
    config["machine"]["files"] = [{"op": "create", "path": CRI_PART, "permissions": 420, "content": content}]
    return documents


@pytest.mark.parametrize("release", RELEASES)
def test_s4_06_the_default_runtime_nvidia_is_taken_up_to_talos_112_and_refused_after_it(release: str) -> None:
    documents = with_part(PART.format(section=SECTION, name="nvidia"))
    errors, warnings = containerd_rules(documents, (1, int(release.split(".")[1])))
    if release < "1.13":
        assert errors == () and len(warnings) == 1 and "is not needed" in warnings[0] and "runtimeClassName nvidia" in warnings[0]
    else:
        assert (
            warnings == ()
            and len(errors) == 1
            and errors[0].startswith("machine.files[0].content: the default runtime nvidia is refused")
        )
        assert "by CDI" in errors[0] and "every pod of the node" in errors[0]
    assert set(errors) <= set(check(documents, talos_version=release).errors)
    assert containerd_rules(with_part(PART.format(section=SECTION, name="runc")), (1, 15)) == ((), ())


def test_s4_06_the_section_is_that_of_containerds_configuration_and_the_part_is_toml() -> None:
    [said] = containerd_rules(with_part(PART.format(section="io.containerd.grpc.v1.cri", name="nvidia")), (1, 11)).errors
    assert "does not read [plugins.'io.containerd.grpc.v1.cri']" in said and SECTION in said
    [said] = containerd_rules(with_part("default_runtime_name: nvidia"), (1, 11)).errors
    assert said.startswith("machine.files[0].content is not TOML")
    document = {
        "apiVersion": "v1alpha1",
        "kind": "CRICustomizationConfig",
        "name": "gpu",
        "content": PART.format(section=SECTION, name="nvidia"),
    }
    [said] = containerd_rules([document], (1, 14)).errors
    assert said.startswith("CRICustomizationConfig gpu: content: the default runtime nvidia is refused")


def test_s4_05_kernel_modules_are_documents_where_the_template_has_them_so_and_never_both() -> None:
    template = "machine: {}\ncluster: {}\n---\napiVersion: v1alpha1\nkind: KernelModuleConfig\nname: nvidia\nparameters: [a=1]\n"
    documents = build(make(talos_version="1.14.1", model="B200"), template)
    modules = [document["name"] for document in documents if document.get("kind") == "KernelModuleConfig"]
    assert modules == ["nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "ib_umad"] and documents[1]["parameters"] == ["a=1"]
    assert "modules" not in documents[0]["machine"].get("kernel", {})
    found = check(documents, talos_version="1.14.1")
    assert not [said for said in found.errors if "KernelModuleConfig" in said] and any(
        "fields were not checked" in said for said in found.warnings
    )
    documents[0]["machine"]["kernel"] = {"modules": [{"name": "nvidia"}]}
    assert (
        "machine.kernel.modules and KernelModuleConfig exclude each other; write KernelModuleConfig only."
        in check(documents).errors
    )
    assert any("KernelModuleConfig needs Talos 1.14 or newer, this is 1.13; write machine.kernel.modules instead." in said
               for said in check(documents, talos_version="1.13.9").errors)  # fmt: skip
