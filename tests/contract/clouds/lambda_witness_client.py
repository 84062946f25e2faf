# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drives lambda-cloud-client for test_lambda_witness.py. It is run by the Python of that package's own environment, never imported.

The first line of standard input is the client's configuration; each later line is one call, answered by one line:
``{"method": …, "words": […], "model": …, "fields": {…}, "raw": false}`` gives ``{"data": …}`` or ``{"status": 404, "code": …}``.
Answers went through the library's own models, but those of raw calls, which are the text as it came.
"""

from __future__ import annotations

import json
import sys
import typing as t

import lambda_cloud_client as library


def answer(api: t.Any, call: dict[str, t.Any]) -> dict[str, t.Any]:
    arguments = list(call.get("words", []))
    if call.get("model"):
        arguments.append(getattr(library, call["model"])(**call["fields"]))
    try:
        if call.get("raw"):
            made = getattr(api, call["method"] + "_with_http_info")(*arguments, _preload_content=False)
            return {"data": made.raw_data.decode()}
        made = getattr(api, call["method"])(*arguments)
        return {"data": json.loads(made.to_json())["data"] if made is not None else None}  # some calls answer nothing at all
    except library.ApiException as error:
        said = library.ErrorResponseBody.from_json(error.body)
        return {"status": error.status, "code": said.error.code.value}


def main() -> None:
    configuration = library.Configuration(**json.loads(sys.stdin.readline()))
    api = library.DefaultApi(library.ApiClient(configuration))
    for line in sys.stdin:
        print(json.dumps(answer(api, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
