"""A shop: a product asks another service for its price when that is first read."""
import functools
import sys

import cached_property
import urllib3
import waitress
from flask import Flask

app = Flask(__name__)
prices = urllib3.PoolManager(maxsize=8)
once = {"functools": functools.cached_property, "package": cached_property.cached_property}[sys.argv[1]]


class Product:
    @once
    def price(self):
        return len(prices.request("GET", "http://127.0.0.1:9000/").data)


@app.get("/product")
def product():
    p = Product()
    return {"price": p.price, "total": p.price * 2}


waitress.serve(app, host="127.0.0.1", port=8080, threads=8)
