"""A worker that keeps a large index in memory, and turns documents into records; between them it collects garbage as the
benchmark does (argument "collect"), or leaves that to the interpreter."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_gc_collect"))
import run_benchmark  # noqa: E402
from paced import paced  # noqa: E402

index = [{"id": n, "words": [str(n)]} for n in range(300_000)]
collect = sys.argv[1] == "collect"


def job():
    total = sum(len(index[n * 7 % len(index)]["words"]) for n in range(20_000))
    if collect:
        run_benchmark.benchamark_collection(1, run_benchmark.CYCLES, run_benchmark.LINKS)
    else:
        run_benchmark.create_gc_cycles(run_benchmark.CYCLES, run_benchmark.LINKS)
    return total


paced(job, 30)
