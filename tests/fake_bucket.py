"""A stand-in for Google Cloud Storage: as much of its JSON API as gcsfs and TensorStore speak.

Objects are kept in memory, appear whole, and have a generation that counts their writings, which
TensorStore's conditional requests rest upon. https://cloud.google.com/storage/docs/json_api
"""

import email
import http.server
import itertools
import json
import re
import sys
import threading
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

NAME = "bucket"


class Object(NamedTuple):
    """A stored object."""

    content: bytes
    generation: int


class Server(http.server.ThreadingHTTPServer):
    """Serves one bucket, gs://bucket, at `address` while it is entered."""

    daemon_threads = True

    def __init__(self) -> None:
        """Opens a port; what is asked before the server is entered waits."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.objects: dict[str, Object] = {}
        self.uploads: dict[str, bytes] = {}  # unfinished, by name
        self.refuses = False  # whatever is asked
        self.generations = itertools.count(1)
        self.lock = threading.Lock()

    def __enter__(self):
        """Answers from now on."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        """Answers no more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Ignores clients that disconnect before the answer, such as killed processes."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Answer(NamedTuple):
    """To a request; an answer other than OK may also be raised."""

    content: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


class _RefusedError(Exception):
    """Carries an answer."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        """Says nothing."""

    def do_GET(self):
        """Returns an object's content or metadata, or lists objects."""
        self._serve(self._get)

    def do_POST(self):
        """Writes an object, or gives it another name."""
        self._serve(self._post)

    def do_DELETE(self):
        """Deletes an object."""
        self._serve(self._delete)

    def _serve(self, method):
        parts = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        query = dict(urllib.parse.parse_qsl(parts.query))
        try:
            with self.server.lock:
                if self.server.refuses:
                    raise _RefusedError(Answer(status=HTTPStatus.FORBIDDEN))
                answer = method(urllib.parse.unquote(parts.path), query, body)
        except _RefusedError as error:
            answer = error.args[0]
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        if answer.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def _get(self, path, query, _):
        if path == f"/storage/v1/b/{NAME}/o":
            return self._listed(query.get("prefix", ""), query.get("delimiter", ""))
        name, found = self._found(path, query)
        return self._content(found) if query.get("alt") == "media" else _described(name, found)

    def _post(self, path, query, body):
        if path == f"/upload/storage/v1/b/{NAME}/o":
            return self._upload(query, body)
        old, _, new = path.partition("/moveTo/o/")
        name, found = self._found(old, query)
        del self.server.objects[name]
        return self._written(new, found.content)

    def _delete(self, path, query, _):
        name, _ = self._found(path, query)
        del self.server.objects[name]
        return Answer(status=HTTPStatus.NO_CONTENT)

    def _found(self, path, query):
        match = re.fullmatch(f"(?:/download)?/storage/v1/b/{NAME}/o/(.+)", path, re.DOTALL)
        found = match and self.server.objects.get(match[1])
        if not match or not found:
            raise _RefusedError(Answer(status=HTTPStatus.NOT_FOUND))
        if query.get("ifGenerationNotMatch") == str(found.generation):
            raise _RefusedError(Answer(status=HTTPStatus.NOT_MODIFIED))
        return match[1], found

    def _listed(self, prefix, delimiter):
        items, prefixes = [], set()
        for name, found in sorted(self.server.objects.items()):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                items.append(_description(name, found))
        return _json({"items": items, "prefixes": sorted(prefixes)})

    def _content(self, found):
        headers = {"x-goog-generation": str(found.generation)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        if not asked:
            return Answer(found.content, headers=headers)
        size = len(found.content)
        first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        if first >= size:
            return Answer(status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(found.content[first : last + 1], HTTPStatus.PARTIAL_CONTENT, headers)

    def _upload(self, query, body):
        """Takes an object whole, with its description before it, or in parts."""
        name, uploads = query.get("name"), self.server.uploads
        match query["uploadType"]:
            case "multipart":
                head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
                whole: Any = email.message_from_bytes(head + body)
                about, content = whole.get_payload()
                name = json.loads(about.get_payload(decode=True))["name"]
                body = content.get_payload(decode=True)
            case "resumable" if "Content-Range" not in self.headers:
                uploads[name] = b""
                return Answer(headers={"Location": self.server.address + self.path})
            case "resumable":
                uploads[name] += body
                if self.headers["Content-Range"].endswith("/*"):
                    end = {"Range": f"bytes=0-{len(uploads[name]) - 1}"}
                    return Answer(status=HTTPStatus.PERMANENT_REDIRECT, headers=end)
                body = uploads.pop(name)
        return self._written(name, body, query.get("ifGenerationMatch"))

    def _written(self, name, content, if_generation=None):
        before = self.server.objects.get(name)
        if if_generation not in (None, str(before.generation if before else 0)):
            raise _RefusedError(Answer(status=HTTPStatus.PRECONDITION_FAILED))
        found = self.server.objects[name] = Object(content, next(self.server.generations))
        return _described(name, found)


def _description(name: str, found: Object) -> dict[str, Any]:
    return {
        "kind": "storage#object",
        "bucket": NAME,
        "name": name,
        "size": str(len(found.content)),
        "generation": str(found.generation),
        "metageneration": "1",
    }


def _described(name: str, found: Object) -> Answer:
    return _json(_description(name, found))


def _json(content: Any) -> Answer:
    return Answer(json.dumps(content).encode(), headers={"Content-Type": "application/json"})
