"""Takes in batches of lines at a fixed rate: take_in.py FILE RATE MODE. MODE is row or batch: what a transaction is.

After SIGINT it prints the lines a second and the 99th percentile of the time from when a batch was due.
"""
import signal
import sqlite3
import sys
import time

LINES = 200  # of a batch


def main():
    name, rate, mode = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    db = sqlite3.connect(name, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE lines (at REAL, text TEXT)")
    began, took = time.monotonic(), []

    def report(*_):
        print(f"lines/s: {LINES * len(took) / (time.monotonic() - began):.3f}")
        print(f"p99: {1000 * sorted(took or [time.monotonic() - began])[len(took) * 99 // 100]:.3f}ms", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGINT, report)
    due = began
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        if mode == "batch":
            db.execute("BEGIN")
        for n in range(LINES):
            db.execute("INSERT INTO lines VALUES (?, ?)", (due, f"line {n}"))
        if mode == "batch":
            db.execute("COMMIT")
        took.append(time.monotonic() - due)
        due += 1 / rate


main()
