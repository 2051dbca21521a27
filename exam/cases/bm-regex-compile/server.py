"""A web application that checks texts against the patterns of the benchmark, compiled anew as it does or once."""
import os
import sys

from flask import Flask

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_regex_compile"))
import re  # noqa: E402

import run_benchmark  # noqa: E402

app = Flask(__name__)
PATTERNS = run_benchmark.capture_regexes()
COMPILED = [re.compile(pattern, flags) for pattern, flags in PATTERNS[:60]]
TEXT = "Perl is a trademark of nobody; 2001-02-03 and user@example.org stand here for the sake of the search. " * 2


@app.get("/check/<mode>")
def check(mode):
    if mode == "compile":
        run_benchmark.bench_regex_compile(1, PATTERNS)
    found = sum(1 for pattern in COMPILED if isinstance(pattern.pattern, str) and pattern.search(TEXT))
    return {"found": found}
