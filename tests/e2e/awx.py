# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for AWX's REST API v2, as far as playbooks/awx.yml uses it, by AWX's published serializers and their tests.

It answers as AWX does where a client may be wrong: pages of 25, unknown fields are ignored, unknown filters are 400, field errors are
400 with lists by field, duplicates 400 with ``__all__``, a project is synchronized after a while, and only then its playbooks are known.
"""

from __future__ import annotations

import json
import re
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import jinja2
import jinja2.sandbox

ADMIN, READER = "token-of-an-administrator-0123456789", "token-of-a-reader-0123456789"
Json = dict[str, t.Any]
_BASE = {"description": ""}
#: kind: fields with their defaults (None: null), those that must be given, and those that are unique together
KINDS: dict[str, tuple[Json, tuple[str, ...], tuple[str, ...]]] = {
    "organizations": ({}, ("name",), ("name",)),
    "credentials": ({"organization": None, "credential_type": None}, ("name",), ("name",)),
    "credential_types": ({"kind": "cloud", "inputs": {}, "injectors": {}}, ("name", "kind"), ("name", "kind")),
    "execution_environments": (
        {"organization": None, "image": "", "pull": "", "credential": None},
        ("name", "image"),
        ("name",),
    ),
    "projects": (
        {"organization": None, "scm_type": "", "scm_url": "", "scm_branch": "", "scm_update_on_launch": False, "credential": None},
        ("name",),
        ("name", "organization"),
    ),
    "inventories": ({"organization": None, "kind": "", "variables": ""}, ("name", "organization"), ("name", "organization")),
    "inventory_sources": (
        {
            "inventory": None, "source": "", "source_project": None, "source_path": "", "overwrite": False, "update_on_launch": False,
            "execution_environment": None, "credential": None,
        },
        ("name", "inventory", "source"),
        ("name", "inventory"),
    ),
    "job_templates": (
        {
            "organization": None, "job_type": "run", "inventory": None, "project": None, "playbook": "", "execution_environment": None,
            "extra_vars": "", "allow_simultaneous": False, "survey_enabled": False,
        },
        ("name", "project"),
        ("name", "organization"),
    ),
    "schedules": (
        {"unified_job_template": None, "rrule": "", "enabled": True, "extra_data": {}},
        ("name", "unified_job_template", "rrule"),
        ("name", "unified_job_template"),
    ),
}  # fmt: skip
LINKS = {
    "organization": "organizations", "inventory": "inventories", "project": "projects", "source_project": "projects",
    "execution_environment": "execution_environments", "unified_job_template": "job_templates", "credential": "credentials",
}  # fmt: skip
SURVEY_TYPES = {
    "text": str,
    "textarea": str,
    "password": str,
    "integer": int,
    "float": float,
    "multiplechoice": str,
    "multiselect": str,
}


class Refused(Exception):
    def __init__(self, status: int, body: Json) -> None:
        super().__init__(body)
        self.status, self.body = status, body


def field_error(field: str, text: str) -> Refused:
    return Refused(400, {field: [text]})


class Awx:
    """``playbooks`` are the files of every project once it is synchronized; ``syncs``: how often it is read before."""

    def __init__(self, playbooks: t.Collection[str] = (), syncs: int = 1) -> None:
        self.objects: dict[str, dict[int, Json]] = {kind: {} for kind in KINDS}
        self.surveys: dict[int, Json] = {}
        self.writes: list[tuple[str, str]] = []
        self.authorizations: set[str] = set()
        self.playbooks, self._syncs, self._left = playbooks, syncs, {}  # type: ignore[var-annotated]
        self._last = 0
        self._guard = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.add("organizations", name="Default")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, kind: str, /, **fields: t.Any) -> Json:
        """An object that somebody else has created."""
        self._last += 1
        defaults, _needed, _unique = KINDS[kind]
        stored = {
            "id": self._last,
            "type": kind.removesuffix("s"),
            **_BASE,
            **defaults,
            **fields,
            "summary_fields": {"credentials": []},
        }
        self.objects[kind][self._last] = stored
        return stored

    def named(self, kind: str) -> dict[str, Json]:
        return {one["name"]: one for one in self.objects[kind].values()}

    # ---- one call

    def answer(self, method: str, target: str, authorization: str, body: Json) -> tuple[int, t.Any]:
        with self._guard:
            try:
                return self._answer(method, target, authorization, body)
            except Refused as refused:
                return refused.status, refused.body

    def _answer(self, method: str, target: str, authorization: str, body: Json) -> tuple[int, t.Any]:
        self.authorizations.add(authorization)
        if authorization not in (f"Bearer {ADMIN}", f"Bearer {READER}"):
            raise Refused(
                401, {"detail": "Authentication credentials were not provided. To establish a login session, visit /api/login/."}
            )
        url = urlsplit(target)
        parts = url.path.strip("/").split("/")
        if parts[:2] != ["api", "v2"] or len(parts) < 3 or parts[2] not in KINDS or not url.path.endswith("/"):
            raise Refused(404, {"detail": "The requested resource could not be found."})
        if method != "GET" and authorization != f"Bearer {ADMIN}":
            raise Refused(403, {"detail": "You do not have permission to perform this action."})
        kind, rest = parts[2], parts[3:]
        if method != "GET":
            self.writes.append((method, url.path))
        if not rest:
            return (
                (200, self._page(kind, url.path, dict(parse_qsl(url.query))))
                if method == "GET"
                else (201, self._create(kind, body))
            )
        if int(rest[0]) not in self.objects[kind]:
            raise Refused(404, {"detail": "Not found."})
        at = self.objects[kind][int(rest[0])]
        if rest[1:] == ["survey_spec"]:
            return 200, self.surveys.get(at["id"], {}) if method == "GET" else self._survey(at["id"], body)
        if rest[1:] == ["credentials"] and method == "POST":
            credential = self.objects["credentials"].get(body.get("id"))  # type: ignore[arg-type]
            if credential is None:
                raise field_error("id", f'Invalid pk "{body.get("id")}" - object does not exist.')
            at["summary_fields"]["credentials"].append({"id": credential["id"], "name": credential["name"]})
            return 204, None
        if method == "PATCH":
            known = {key: value for key, value in body.items() if key in at}
            self._check(kind, {**at, **known}, own=at["id"])
            at |= known
        self._sync(kind, at)
        return 200, at

    def _page(self, kind: str, path: str, query: dict[str, str]) -> Json:
        size, page = min(int(query.pop("page_size", "25")), 200), int(query.pop("page", "1"))
        found = [one for _id, one in sorted(self.objects[kind].items())]
        for name, value in query.items():
            field, _sep, lookup = name.partition("__")
            if lookup not in ("", "in", "exact") or (found and field not in found[0]):
                raise Refused(400, {"detail": f"{kind} has no field named '{field}'"})
            wanted = value.split(",") if lookup == "in" else [value]
            found = [one for one in found if str(one[field]) in wanted]
        more = f"{path}?page={page + 1}" if len(found) > page * size else None
        return {"count": len(found), "next": more, "previous": None, "results": found[(page - 1) * size : page * size]}

    def _create(self, kind: str, body: Json) -> Json:
        defaults, _needed, _unique = KINDS[kind]
        wanted = {**_BASE, **defaults, **{key: value for key, value in body.items() if key in (*defaults, "name", "description")}}
        if kind == "job_templates" and wanted["project"] in self.objects["projects"]:
            wanted["organization"] = self.objects["projects"][wanted["project"]]["organization"]
        self._check(kind, wanted, own=0)
        stored = self.add(kind, **wanted)
        if kind == "projects":
            self._left[stored["id"]] = self._syncs
            stored["status"] = "pending"
        return stored

    def _sync(self, kind: str, at: Json) -> None:
        if kind == "projects" and at.get("status") != "successful":
            self._left[at["id"]] = self._left.get(at["id"], 0) - 1
            at["status"] = (
                "running" if self._left[at["id"]] >= 0 else "successful" if at["scm_url"].startswith("https://") else "failed"
            )

    # ---- validation

    def _check(self, kind: str, wanted: Json, own: int) -> None:
        _defaults, needed, unique = KINDS[kind]
        for field in needed:
            if wanted.get(field) in (None, ""):
                raise field_error(field, "This field is required.")
        for field, other in LINKS.items():
            if wanted.get(field) is not None and wanted[field] not in self.objects[other]:
                raise field_error(field, f'Invalid pk "{wanted[field]}" - object does not exist.')
        for one in self.objects[kind].values():
            if one["id"] != own and all(one[field] == wanted[field] for field in unique):
                names = " and ".join(field.replace("_", " ").capitalize() for field in unique)
                raise field_error(
                    "__all__", f"{kind.removesuffix('s').replace('_', ' ').capitalize()} with this {names} already exists."
                )
        {"credential_types": _check_type, "schedules": _check_rrule}.get(kind, _accept)(wanted)
        if kind == "job_templates":
            project = self.objects["projects"][wanted["project"]]
            if wanted["inventory"] is None:
                raise field_error("inventory", "Job Templates must have an inventory or ask for it on launch.")
            if project.get("status") != "successful" or wanted["playbook"] not in self.playbooks:
                raise field_error("playbook", "Playbook not found for project.")
            json.loads(wanted["extra_vars"] or "{}")

    def _survey(self, template: int, body: Json) -> Json:
        for name in ("name", "description", "spec"):
            if name not in body:
                raise Refused(400, {"error": f"'{name}' missing from survey spec."})
        for number, question in enumerate(body["spec"]):
            for name in ("type", "question_name", "variable", "required"):
                if name not in question:
                    raise Refused(400, {"error": f"'{name}' missing from survey question {number}."})
            allowed = SURVEY_TYPES.get(question["type"])
            if allowed is None:
                raise Refused(400, {"error": f"'{question['type']}' in survey question {number} is not one of the allowed types."})
            if question.get("default", "") != "" and not isinstance(question["default"], allowed):
                raise Refused(400, {"error": f"Default value of question {number} has the wrong type."})
            if question["type"].startswith("multi") and not question.get("choices"):
                raise Refused(400, {"error": f"Survey question {number} of type {question['type']} must specify choices."})
        self.surveys[template] = body
        return {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        awx = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = awx.answer(self.command, self.path, self.headers.get("Authorization", ""), json.loads(text or "{}"))
                content = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = _serve

            def log_message(self, *_arguments: t.Any) -> None:
                """Nothing."""

        return Handler


def _accept(_wanted: Json) -> None:
    """Nothing more is checked."""


def _check_type(wanted: Json) -> None:
    """Inputs by their schema, injectors by theirs and by rendering each with the fields that there are."""
    fields = wanted["inputs"].get("fields", [])
    for field in fields:
        odd = set(field) - {
            "id",
            "label",
            "type",
            "secret",
            "multiline",
            "choices",
            "format",
            "help_text",
            "default",
            "ask_at_runtime",
        }
        if odd or not {"id", "label"} <= set(field) or field.get("type", "string") not in ("string", "boolean"):
            raise field_error("inputs", f"Additional or missing properties of {field.get('id')}: {sorted(odd)}")
        if not re.fullmatch(r"[a-zA-Z_]+[a-zA-Z0-9_]*", field["id"]) or field["id"] == "tower":
            raise field_error("inputs", f"{field['id']} is not a valid or a reserved name")
    ids = {field["id"] for field in fields}
    if not set(wanted["inputs"].get("required", [])) <= ids:
        raise field_error("inputs", "required names an unknown field")
    injectors = wanted["injectors"]
    if not set(injectors) <= {"file", "env", "extra_vars"}:
        raise field_error("injectors", "Additional properties are not allowed")
    files = {name.partition(".")[2]: "EXAMPLE" for name in injectors.get("file", {})}
    space = {**dict.fromkeys(ids, "EXAMPLE"), "tower": {"filename": files}}
    for name in injectors.get("env", {}):
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) or name.startswith("ANSIBLE_"):
            raise field_error("injectors", f"Environment variable {name} is not allowed to be used in credentials.")
    sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
    for section in injectors.values():
        for key, template in section.items():
            try:
                sandbox.from_string(template).render(**space)
            except jinja2.UndefinedError as error:
                raise field_error("injectors", f"{key} uses an undefined field ({error})") from None
    used = {name for section in injectors.values() for text in section.values() for name in re.findall(r"{{ (\w+) }}", text)}
    assert ids == used, "every field is handed to the job"


def _check_rrule(wanted: Json) -> None:
    rule = wanted["rrule"]
    if not re.search(r"DTSTART(:|;TZID=\S+:)\d{8}T\d{6}Z?", rule):
        raise field_error("rrule", "Valid DTSTART required in rrule. Value should start with: DTSTART:YYYYMMDDTHHMMSSZ")
    if re.search(r"DTSTART:\d{8}T\d{6}(?!Z)", rule):
        raise field_error("rrule", "DTSTART cannot be a naive datetime.  Specify ;TZINFO= or YYYYMMDDTHHMMSSZZ.")
    rules = re.findall(r"RRULE:\S*", rule)
    if not rules:
        raise field_error("rrule", "One or more rule required in rrule.")
    for one in rules:
        interval = re.search(r"INTERVAL=(\d+)", one)
        if interval is None:
            raise field_error("rrule", f"INTERVAL required in rrule: {one}")
        if "SECONDLY" in one:
            raise field_error("rrule", f"SECONDLY is not supported: {one}")
        if int(interval[1]) < 1 or not re.search(r"FREQ=(MINUTELY|HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY)", one):
            raise field_error("rrule", f"rrule parsing failed validation: {one}")
