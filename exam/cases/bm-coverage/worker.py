"""A worker that computes for each job; coverage is measured meanwhile as the benchmark does it, or not."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_coverage"))
import run_benchmark  # noqa: E402
from paced import paced  # noqa: E402

measured = sys.argv[1] == "coverage"


def job():
    if measured:
        run_benchmark.bench_coverage(1)
    else:
        run_benchmark.fibonacci(25)


paced(job, 30)
