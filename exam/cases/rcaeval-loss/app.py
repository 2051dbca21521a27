"""A cart service: each request reads the cart and its products from redis."""
import redis
from flask import Flask

app = Flask(__name__)
store = redis.Redis(host="10.9.0.2", port=6379)


@app.get("/cart")
def cart():
    views = store.incr("cart:views")
    items = store.hgetall("cart:7")
    prices = [store.get(f"price:{n}") for n in range(3)]
    return {"views": views, "items": len(items), "priced": len(prices)}
