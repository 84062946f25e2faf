# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every document under examples/ is accepted, and its template gives nodes in both lanes."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.container import LIMIT, start_script
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import WORKER
from ansible_collections.tgp.gpu.plugins.module_utils.talos.validation.validate import template_problems

from tests.fixtures.talos_nodes import make
from tests.fixtures.tunnels import make_tunnelled

ROOT = pathlib.Path(__file__).parents[3]
OF_SERVICES = ROOT / "examples" / "service.yml"
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yml") if path != OF_SERVICES)
SEEDS = [ROOT / "tests" / "fixtures" / "seeds" / name for name in ("s0-nodeclass.yaml", "s0-nodepool.yaml")]


def _specs(*paths):
    found = [Document(str(path), one) for path in paths for one in yaml.safe_load_all(path.read_text())]
    return parse(found)[0]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("lane", [Lane.TALOS, Lane.KUBELET])
def test_an_example_gives_nodes(path, lane):
    specs = _specs(path)
    with_nodes = {pool.node_class for pool in specs.pools if pool.service is None}
    for node_class in (one for one in specs.classes.values() if one.name in with_nodes):
        template = node_class.template
        assert template is not None and template_problems(template, node_class.talos_image) == []
        facts = {"mesh": node_class.mesh, "installer_image": node_class.talos_image, "lane": lane}
        node = make_tunnelled(**facts) if node_class.mesh.hub_place is not None else make(**facts)
        assert "{{" not in payload(node, template).text


def test_the_example_of_services_gives_containers():
    specs = _specs(OF_SERVICES)
    (pool,) = specs.pools
    assert specs.classes[pool.node_class].template is None
    script = start_script(pool.service, ())
    assert "exec python3 -m http.server 8000" in script and len(script) <= LIMIT


def test_there_are_examples():
    assert [path.stem for path in EXAMPLES] == [
        "all_lanes",
        "clouds",
        "lambda",
        "seed-s0-corrected",
        "volumes",
        "webhook",
        "wireguard",
    ]


def test_s0_the_seed_is_accepted_but_for_its_template():
    specs = _specs(*SEEDS)
    seed = specs.classes["standard-gpu-class"]
    assert len(template_problems(seed.template, seed.talos_image)) == 4
    with pytest.raises(InvalidInput) as caught:
        payload(make(installer_image=seed.talos_image, mesh=seed.mesh), seed.template)
    assert len(caught.value.problems) == 4
    assert template_problems(WORKER) == []


def test_s0_the_corrected_seed_differs_in_its_machine_configuration_and_a_provider_that_has_what_it_asks_for():
    seed = [yaml.safe_load(path.read_text()) for path in SEEDS]
    corrected = list(yaml.safe_load_all((ROOT / "examples" / "seed-s0-corrected.yml").read_text()))
    for documents in (seed, corrected):
        del documents[0]["spec"]["talosConfig"]
    assert corrected[0]["spec"]["providers"].pop()["name"] == "vast"
    assert seed == corrected
