# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a cluster's secrets may come from, and what is refused."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import redact
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read

from tests.fixtures.talos_nodes import BUNDLE, CONFIG, pem


def test_every_source_gives_the_same_secrets(tmp_path):
    file = tmp_path / "secrets.yaml"
    file.write_text(yaml.safe_dump(BUNDLE))
    resource = {"node": "10.0.0.1", "metadata": {"type": "MachineConfigs"}, "spec": yaml.safe_dump(CONFIG)}
    bundle = read(BUNDLE)
    for source in (str(file), yaml.safe_dump(BUNDLE), CONFIG, yaml.safe_dump(CONFIG), resource, yaml.safe_dump(resource)):
        found = read(source)
        for field in ("trustd_token", "os_ca_crt", "k8s_ca_crt", "cluster_id", "cluster_secret", "bootstrap_token"):
            assert getattr(found, field) == getattr(bundle, field)


def test_a_configuration_also_tells_about_the_network():
    found = read(CONFIG)
    assert (found.endpoint, found.cluster_name, found.dns_domain) == ("https://10.0.0.1:6443", "home", "cluster.test")
    assert (found.pod_subnets, found.service_subnets) == (("10.1.0.0/16",), ("10.2.0.0/16",))
    assert read(BUNDLE).endpoint == ""


@pytest.mark.parametrize("source", [BUNDLE, CONFIG])
def test_no_ca_key_is_kept_and_nothing_secret_is_shown(source):
    found = read(source)
    values = [getattr(found, name) for name in type(found).__slots__]
    keys = [entry["key"] for entry in BUNDLE["certs"].values()]
    assert not set(keys) & {value for value in values if isinstance(value, str)}
    assert "trustd.0123456789abcdef" not in repr(found) and BUNDLE["cluster"]["secret"] not in repr(found)
    assert redact(f"x {found.trustd_token} {found.cluster_secret} {found.bootstrap_token}") == "x ******** ******** ********"


def _without(source, *path):
    changed = copy.deepcopy(source)
    part = changed
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return changed


@pytest.mark.parametrize(
    "source, path",
    [
        (BUNDLE, "trustdinfo.token"),
        (BUNDLE, "certs.os.crt"),
        (BUNDLE, "certs.k8s.crt"),
        (BUNDLE, "cluster.id"),
        (BUNDLE, "cluster.secret"),
        (CONFIG, "machine.token"),
        (CONFIG, "machine.ca.crt"),
        (CONFIG, "cluster.ca.crt"),
    ],
)
def test_a_missing_key_is_named(source, path):
    with pytest.raises(InvalidInput) as caught:
        read(_without(source, *path.split(".")))
    assert f"{path} is missing." in caught.value.problems


def test_all_missing_keys_are_named_at_once():
    with pytest.raises(InvalidInput) as caught:
        read({"trustdinfo": {}, "certs": {}})
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize("token", ["short", "TRUSTD.0123456789abcdef", "trustd-0123456789abcdef0"])
def test_a_wrong_token_is_refused_without_showing_it(token):
    with pytest.raises(InvalidInput) as caught:
        read({**BUNDLE, "trustdinfo": {"token": token}})
    assert "trustdinfo.token" in str(caught.value) and token not in str(caught.value)


@pytest.mark.parametrize("crt", ["no base64!", "aGVsbG8=", pem("x") + "x"])
def test_a_wrong_certificate_is_refused(crt):
    certs = {**BUNDLE["certs"], "os": {"crt": crt}}
    with pytest.raises(InvalidInput, match=r"certs\.os\.crt"):
        read({**BUNDLE, "certs": certs})


@pytest.mark.parametrize("source", ["/does/not/exist.yaml", {"kind": "Secret"}, "a: 1\nb: 2\n", "\n \n"])
def test_something_else_is_refused_with_the_remedy(source):
    with pytest.raises(InvalidInput, match="talosctl gen secrets"):
        read(source)


def test_broken_yaml_is_located_and_not_shown():
    with pytest.raises(InvalidInput) as caught:
        read("cluster:\n  secret: [dmVyeS1zZWNyZXQtdmFsdWU=\n")
    assert "line" in str(caught.value) and "dmVyeS1zZWNyZXQ" not in str(caught.value)


def test_the_same_certificate_twice_is_a_wrong_bundle():
    wrong = {**BUNDLE, "certs": {**BUNDLE["certs"], "os": BUNDLE["certs"]["k8s"]}}
    with pytest.raises(InvalidInput, match="certs.os.crt and certs.k8s.crt are the same certificate"):
        read(wrong)
