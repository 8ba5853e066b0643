"""A hub of one process: the three requests that an upload of small files makes, answered as huggingface.co answers them."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """Use as a context manager; `files` has what was committed, by repository and path."""

    def __init__(self, token="secret"):
        self.files, self.private = {}, {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Authorization") != f"Bearer {token}":
                    return self.answer({"error": "Invalid username or password."}, 401)
                if self.path == "/api/repos/create":
                    wanted = json.loads(body)
                    name = f"{wanted.get('organization', 'me')}/{wanted['name']}"
                    hub.files.setdefault(name, {})
                    hub.private[name] = wanted.get("private") or wanted.get("visibility") == "private"
                    return self.answer({"url": f"{hub.address}/{name}", "name": name})
                name = "/".join(self.path.split("/")[3:5])
                if "/preupload/" in self.path:
                    files = [
                        {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                        for file in json.loads(body)["files"]
                    ]
                    return self.answer({"files": files})
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        hub.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                self.answer({"commitUrl": f"{hub.address}/{name}/commit/1", "commitOid": "1", "success": True})

            def do_GET(self):
                self.answer({"siblings": [], "id": "x", "sha": "0"})

            def answer(self, value, status=200):
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
