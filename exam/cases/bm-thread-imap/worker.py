"""A worker that hands numbers to a pool of two threads, as the benchmark does, in chunks of the size that is given."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_concurrent_imap"))
import run_benchmark  # noqa: E402
from paced import paced  # noqa: E402

chunk = int(sys.argv[1])


def job():
    run_benchmark.bench_thread_pool(2, 50_000, chunk)


paced(job, 12)
