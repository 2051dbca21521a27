"""Says whether a domain name could be registered."""
import http.server

import idna

NAMES = {
    "/check/odd": "\u0628" + "\u200c\u0627" * 300,
    "/check/ordinary": ".".join(["\u0628\u200c\u0627"] * 8),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            answer = idna.encode(NAMES[self.path])
        except idna.IDNAError:
            answer = b"not possible"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
