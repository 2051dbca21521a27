"""Reports of three parts. A report and its parts are calls of an executor."""
import sys
from concurrent.futures import ThreadPoolExecutor

import urllib3
import waitress
from flask import Flask

app = Flask(__name__)
backend = urllib3.PoolManager(maxsize=16)
reports = ThreadPoolExecutor(max_workers=4)
parts = {"same": reports, "own": ThreadPoolExecutor(max_workers=8)}[sys.argv[1]]


def part(_):
    return len(backend.request("GET", "http://127.0.0.1:9000/").data)


def report():
    return sum(parts.map(part, range(3)))


@app.get("/report")
def page():
    return {"size": reports.submit(report).result()}


waitress.serve(app, host="127.0.0.1", port=8080, threads=16)
