"""A front end that asks its back end with a new session of requests each time."""
import requests
from flask import Flask

app = Flask(__name__)


@app.get("/front")
def front():
    return {"bytes": len(requests.get("http://10.9.0.2:9000/", timeout=5).content)}
