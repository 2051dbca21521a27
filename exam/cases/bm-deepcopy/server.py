"""A web application that hands out settings; each request takes the copies that the benchmark takes."""
import os
import sys

from flask import Flask

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_deepcopy"))
import run_benchmark  # noqa: E402

app = Flask(__name__)


@app.get("/settings/<int:copies>")
def settings(copies):
    spent = run_benchmark.benchmark_memo(copies)
    return {"settings": {str(n): n for n in range(300)}, "spent": spent}
