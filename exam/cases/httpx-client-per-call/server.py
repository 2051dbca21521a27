"""A page that asks another service: by httpx's own functions, or by a client that is kept."""
import functools
import sys

import httpx
import waitress
from flask import Flask

app = Flask(__name__)
get = {
    "functions": httpx.get,
    "unverified": functools.partial(httpx.get, verify=False),
    "client": httpx.Client().get,
}[sys.argv[1]]


@app.get("/")
def page():
    return {"size": len(get("http://127.0.0.1:9000/").text)}


waitress.serve(app, host="127.0.0.1", port=8080, threads=4)
