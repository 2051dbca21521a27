"""An API on cheroot, the server of CherryPy."""
import json
import sys

from cheroot import wsgi


def app(environ, start_response):
    body = [json.dumps({"row": n}).encode() + b"\n" for n in range(8)]
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(sum(map(len, body))))])
    return body


server = wsgi.Server(("127.0.0.1", 8080), app, numthreads=10)
server.nodelay = sys.argv[1] == "nodelay"
server.start()
