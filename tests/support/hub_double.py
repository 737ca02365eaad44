"""A small model hub on loopback that can misbehave: the double that `cohort pull` is tested with.

It answers what huggingface_hub documents: the listing of a revision, and files by resolve/COMMIT,
large ones with x-linked-etag and x-linked-size. Every fault is an attribute a test sets.
"""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HubDouble:
    """Serves one repository; use as a context manager. `log` holds every request it got."""

    def __init__(self, files, repository="org/tiny", commit="c" * 40, large=(".safetensors", ".gguf")):
        self.repository = repository
        self.commit = commit
        self.files = dict(files)
        self.large = tuple(large)
        self.log = []
        self.listing = None  # raw bytes of the listing instead of the real one
        self.status = {}  # path suffix -> list of statuses to answer first
        self.cut_after = {}  # file -> list of byte counts; each content answer uses one up
        self.stall_after = {}  # likewise, but the connection stays open and silent
        self.swap_after_first = {}  # file -> content from its second content request on
        self.announce_sha = {}  # file -> x-linked-etag instead of the true one
        self.announce_size = {}  # file -> size instead of the true one
        self.announce_etag = {}  # file -> ETag instead of the true one
        self.ignore_range = False
        self.ignore_if_range = False
        self.redirect_content_to = None  # base URL that content requests are sent to
        self.redirect_listing_to = None
        self.required_token = None

    def __enter__(self):
        double = self

        class Handler(_Handler):
            hub = double

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def requests(self, method, ending=""):
        return [entry for entry in self.log if entry[0] == method and entry[1].endswith(ending)]

    def etag(self, name):
        return self.announce_etag.get(name, hashlib.sha1(self.files[name]).hexdigest())

    def sha256(self, name):
        return self.announce_sha.get(name, hashlib.sha256(self.files[name]).hexdigest())

    def size(self, name):
        return self.announce_size.get(name, len(self.files[name]))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer()

    def do_HEAD(self):
        self.answer()

    def answer(self):
        hub = self.hub
        hub.log.append((self.command, self.path, dict(self.headers)))
        for ending, statuses in hub.status.items():
            if self.path.endswith(ending) and statuses:
                return self.plain(statuses.pop(0), b"no")
        if hub.required_token and self.headers.get("Authorization") != f"Bearer {hub.required_token}":
            return self.plain(401, b"who are you")
        if self.path.startswith(f"/api/models/{hub.repository}/revision/"):
            return self.answer_listing()
        prefix = f"/{hub.repository}/resolve/{hub.commit}/"
        name = self.path[len(prefix):] if self.path.startswith(prefix) else self.path[1:]
        if name not in hub.files:
            return self.plain(404, b"not here")
        if self.command == "HEAD":
            return self.answer_metadata(name)
        if hub.redirect_content_to:
            return self.redirect(f"{hub.redirect_content_to}/{name}")
        return self.answer_content(name)

    def plain(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def redirect(self, location):
        self.send_response(302)
        self.send_header("Location", location)
        self.send_header("Content-Length", "5")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"Found")

    def answer_listing(self):
        hub = self.hub
        if hub.redirect_listing_to:
            return self.redirect(hub.redirect_listing_to)
        siblings = [{"rfilename": name} for name in hub.files]
        self.plain(200, hub.listing or json.dumps({"sha": hub.commit, "siblings": siblings}).encode())

    def answer_metadata(self, name):
        hub = self.hub
        is_large = name.endswith(hub.large)
        self.send_response(302 if is_large and hub.redirect_content_to else 200)
        self.send_header("ETag", f'"{hub.sha256(name) if is_large else hub.etag(name)}"')
        self.send_header("Content-Length", str(len(hub.files[name])))
        self.send_header("X-Repo-Commit", hub.commit)
        if is_large:
            self.send_header("X-Linked-Etag", f'"{hub.sha256(name)}"')
            self.send_header("X-Linked-Size", str(hub.size(name)))
            if hub.redirect_content_to:
                self.send_header("Location", f"{hub.redirect_content_to}/{name}")
        self.end_headers()

    def answer_content(self, name):
        hub = self.hub
        content = hub.files[name]
        is_large = name.endswith(hub.large)
        tag = f'"{hub.sha256(name) if is_large else hub.etag(name)}"'
        before = [e for e in hub.requests("GET", "/" + name)]
        if name in hub.swap_after_first and len(before) > 1:
            content = hub.swap_after_first[name]
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
        begin = 0
        wanted = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if wanted and not hub.ignore_range and (hub.ignore_if_range or condition in (None, tag)):
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                return self.plain(416, b"")
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.send_body(name, content[begin:])

    def send_body(self, name, body):
        for faults, is_stall in ((self.hub.cut_after, False), (self.hub.stall_after, True)):
            if faults.get(name):
                self.wfile.write(body[: faults[name].pop(0)])
                self.wfile.flush()
                if is_stall:
                    time.sleep(30)
                self.close_connection = True
                return
        self.wfile.write(body)
