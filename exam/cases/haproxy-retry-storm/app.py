"""A report service: each report takes a tenth of a second of a database that serves one at a time."""
import time


def app(environ, start_response):
    time.sleep(0.1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"a report\n"]
