"""Shows data of a health record (ODIN) in colours."""
import http.server

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

TEXTS = {
    "/record/odd": 'patient = <"ann">\nserial = <11111111111111111111>\n',
    "/record/ordinary": 'patient = <"ann">\nserial = <111111.11111>\nweight = <61.5>\n',
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        page = highlight(TEXTS[self.path], get_lexer_by_name("odin"), HtmlFormatter()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
