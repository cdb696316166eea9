"""A chat on the internet: chat.py ADDRESS PORT FILE appends each message to FILE, as a line."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

address, port, file = sys.argv[1:]


class Chat(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(file, "a") as messages:
            print(json.dumps({**message, "path": self.path}), file=messages)
        self.send_response(200)
        self.end_headers()


HTTPServer((address, int(port)), Chat).serve_forever()
