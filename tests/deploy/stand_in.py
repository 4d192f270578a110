"""A process that answers every GET with 200, in the place of SGLang or Antiphon: `stand_in.py PORT [--helper FILE]`.

With ``--helper`` it starts a process of its own, as SGLang does, and writes that one's id into the file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"object": "list", "data": [{"id": "stand-in"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--helper", type=Path)
options = parser.parse_args()
if options.helper:
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    options.helper.write_text(str(helper.pid), "utf-8")
ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
