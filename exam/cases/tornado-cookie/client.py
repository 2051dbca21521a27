"""Visits a page at a fixed rate: client.py RATE WORKERS KIND."""
import http.client
import sys

import paced

rate, workers, kind = sys.argv[1:]
cookie = {"ordinary": "a" * 5000, "odd": '\\"' * 2500}[kind]


def make():
    connection = http.client.HTTPConnection("127.0.0.1", 8080)

    def call():
        connection.request("GET", "/", headers={"Cookie": f'name="{cookie}"'})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200

    return call


paced.run(make, float(rate), int(workers))
