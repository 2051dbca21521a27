"""Posts a form at a fixed rate: client.py RATE WORKERS KIND."""
import http.client
import sys

import paced

rate, workers, kind = sys.argv[1:]
options = {"ordinary": 'charset="utf-8"', "odd": '!="' + "\\" * 26}[kind]


def make():
    connection = http.client.HTTPConnection("127.0.0.1", 8080)

    def call():
        headers = {"Content-Type": "application/x-www-form-urlencoded; " + options}
        connection.request("POST", "/save", "name=ann&town=rome", headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200

    return call


paced.run(make, float(rate), int(workers))
