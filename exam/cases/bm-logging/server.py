"""A web application that writes a report; between its steps it logs as the benchmark does."""
import io
import logging
import os
import sys

from flask import Flask

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_logging"))
import run_benchmark  # noqa: E402

app = Flask(__name__)
stream = io.StringIO()
logger = logging.getLogger("report")
logger.propagate = False
logger.addHandler(logging.StreamHandler(stream))
logger.setLevel(logging.WARNING)
BENCH = {"silent": run_benchmark.bench_silent, "format": run_benchmark.bench_formatted_output}


@app.get("/report/<level>")
def report(level):
    spent = 0.0
    for _ in range(10):
        spent += BENCH[level](30, logger, stream)
    rows = [{"row": n, "total": n * 1.19} for n in range(500)]
    return {"rows": rows, "spent": spent}
