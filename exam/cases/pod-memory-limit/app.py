"""Reports, which are made in memory: app.py is run by gunicorn. /report?mb=N makes one of N MB."""
from flask import Flask, request

app = Flask(__name__)


@app.get("/report")
def report():
    rows = [b"%1024d" % i for i in range(int(request.args["mb"]) * 1024)]
    return {"rows": len(rows)}
