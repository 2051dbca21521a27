"""A front end: each request asks a service that it knows by name."""
import urllib.request

from flask import Flask

app = Flask(__name__)


@app.get("/front")
def front():
    with urllib.request.urlopen("http://catalogue.shop.test:9000/", timeout=30) as answer:
        return {"bytes": len(answer.read())}
