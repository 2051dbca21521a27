"""Fetches a file with Accept-Encoding: gzip at a fixed rate: pages.py PORT PATH RATE WORKERS."""
import http.client
import sys

import paced


def main():
    port, path, rate, workers = sys.argv[1:]

    def worker():
        server = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)

        def call():
            server.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = server.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(f"{path}: {answer.status}")

        return call

    paced.run(worker, float(rate), int(workers))


main()
