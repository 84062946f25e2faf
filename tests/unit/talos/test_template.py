# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placeholders of Go and of Jinja2."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.spec import VARIABLES
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import render, snake

from tests.fixtures.talos_nodes import make

SEED = (
    "MachineToken", "ClusterCA", "ClusterID", "ClusterSecret", "ControlPlaneEndpoint", "ClusterName", "TailscaleAuthKey", "NodeName",
    "NodePool", "NodeIndex",
)  # fmt: skip


@pytest.mark.parametrize("name", SEED)
@pytest.mark.parametrize("form", ["{{.%s}}", "{{ .%s }}", "{{- .%s -}}", "{{ %s }}", "{{%s}}"])
def test_s0_17_every_variable_in_every_form(name, form):
    variables = make().variables()
    assert render(form % name, variables) == variables[name] != ""


@pytest.mark.parametrize(
    "name, plain",
    [("ClusterCA", "cluster_ca"), ("NodeName", "node_name"), ("KubernetesCA", "kubernetes_ca"), ("GPUType", "gpu_type")],
)
def test_snake_names(name, plain):
    assert snake(name) == plain
    assert render(f"{{{{ {plain} }}}}", make().variables()) == make().variables()[name]


def test_the_list_of_names_is_complete():
    assert tuple(make().variables()) == VARIABLES


def test_an_unknown_variable_is_named_with_the_known_ones():
    with pytest.raises(InvalidInput) as caught:
        render("{{.NodeNam}} {{ region }} {{ secret_sauce }}", make().variables())
    text = str(caught.value)
    assert "'NodeNam' is unknown; did you mean 'NodeName'?" in text and "'secret_sauce' is unknown" in text
    assert "Known variables: MachineToken, ClusterCA" in text and "region" not in text.split("Known")[0]


@pytest.mark.parametrize(
    "template",
    [
        "{{if .NodeName}}x{{end}}",
        "{{ range .Items }}{{ end }}",
        "{{ .NodeName | quote }}",
        '{{ printf "%s" .NodeName }}',
        "{{/* comment */}}",
        "{{ $x := 1 }}",
        "{{ .Values.name }}",
        '{{ template "x" . }}',
    ],
)
def test_other_go_constructs_are_refused_with_a_sentence(template):
    with pytest.raises(InvalidInput, match="Go construct"):
        render(f"a: 1\nb: {template}\n", make().variables())


def test_jinja_conditions_and_filters_work():
    text = "{% if GPUCount | int > 0 %}gpu: {{ NodeName | upper }}{% endif %}"
    assert render(text, make().variables()) == "gpu: TGP-ML-3F9A2C"


@pytest.mark.parametrize(
    "template",
    [
        "{{ NodeName.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        "{{ NodeName + 1 }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% if %}",
        "{{",
    ],
)
def test_what_cannot_be_rendered_is_an_error_without_values(template):
    with pytest.raises(InvalidInput) as caught:
        render(template, make().variables())
    assert not any(len(value) > 12 and value in str(caught.value) for value in make().variables().values())


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("a: 1\nb: {{ 'a' * 4000000000 }}", "the Jinja2 construct Mul in line 2"),
        ("{{ 9 ** 9 ** 9 }}", "the Jinja2 construct Pow in line 1"),
        ("{{ '%4000000000d' % 1 }}", "the Jinja2 construct Mod in line 1"),
        ("{{ '{:4000000000}'.format(1) }}", "the Jinja2 construct Call in line 1"),
        ("{{ 'a'.ljust(4000000000) }}", "the Jinja2 construct Call in line 1"),
        ("{{ NodeName | center(4000000000) }}", "the filter 'center' in line 1"),
        ("{{ NodeName | indent(4000000000) }}", "the filter 'indent' in line 1"),
        ("{{ NodeName | replace('a', NodeName) | replace('b', NodeName) }}", "the filter 'replace' in line 1"),
        ("{% for one in NodeName %}{{ one }}{% endfor %}", "the Jinja2 construct For in line 1"),
        ("{% set a = 'aaaaaaaa' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}", "the Jinja2 construct Assign in line 1"),
        ("{% macro a() %}x{% endmacro %}{{ a() }}", "the Jinja2 construct Macro in line 1"),
    ],
)
def test_a_template_cannot_take_the_memory_of_the_controller(template: str, what: str) -> None:
    """Whoever may write a class must not be able to end the process that reads it."""
    with pytest.raises(InvalidInput, match="only .* are taken") as caught:
        render(template, make().variables())
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% if NodeName == 'tgp-ml-3f9a2c' and not GPUCount | int > 8 %}x{% elif NodePool in ['a', 'b'] %}y{% else %}z{% endif %}",
        "{{ NodePool | default('none') | trim | tojson }}{{ 'a' ~ NodeName | length }}{{ 'x' if NodeName is defined else 'y' }}",
    ],
)
def test_conditions_and_harmless_filters_are_taken(template: str) -> None:
    assert render(template, make().variables())


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_whatever_ends_a_line_in_yaml_is_refused_in_a_value(end):
    """The name of a region comes from a cloud."""
    with pytest.raises(InvalidInput, match="Region has more than one line"):
        render("machine: {}\nregion: {{ Region }}\n", {"Region": f"here{end}cluster: 1"})


def test_a_value_of_several_lines_is_refused():
    with pytest.raises(InvalidInput, match="NodePool"):
        render("{{.NodePool}}", {**make().variables(), "NodePool": "a\nb: c"})
