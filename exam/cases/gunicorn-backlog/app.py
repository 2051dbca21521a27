"""A page element that another service knows."""
import urllib3
from flask import Flask

app = Flask(__name__)
backend = urllib3.PoolManager()


@app.get("/element")
def element():
    return backend.request("GET", "http://127.0.0.1:9000/").data
