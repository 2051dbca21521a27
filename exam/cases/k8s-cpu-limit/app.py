"""A small shop: its page is rendered from a template on each request."""
from flask import Flask, render_template_string

app = Flask(__name__)
PAGE = "<ul>{% for i in items %}<li>{{ i.name }}: {{ '%.2f' % i.price }}</li>{% endfor %}</ul>"


@app.get("/products")
def products():
    items = [{"name": f"product {n}", "price": n * 1.1} for n in range(1000)]
    return render_template_string(PAGE, items=items)
