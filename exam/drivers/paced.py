"""Paced load for a case: calls at a fixed rate from several threads, and what came of them after SIGINT.

A call's latency counts from when it was due, so a server that falls behind cannot hide it.
"""
import os
import signal
import sys
import threading
import time

START = 2.0  # seconds that do not count: connections are opened


def run(make, rate, workers):
    """Calls what make() gives each worker, rate times a second in all. make() opens a connection of its own."""
    began = time.monotonic()
    done, failed = [], []
    due = [began + i / rate for i in range(workers)]

    def work(i):
        call = None
        while True:
            time.sleep(max(0.0, due[i] - time.monotonic()))
            try:
                call = call or make()
                call()
                done.append((time.monotonic(), time.monotonic() - due[i]))
            except Exception:  # whatever a client library raises: the call failed, and the next has a new connection
                call = None
                failed.append(time.monotonic())
            due[i] += workers / rate

    def report(*_):
        now = time.monotonic()
        span = now - began - START
        ended = [seconds for at, seconds in done if at >= began + START]
        waiting = [now - d for d in due if d < now]
        seconds = sorted(ended + waiting) or [0.0]
        errors = sum(at >= began + START for at in failed)
        print(f"calls/s: {len(ended) / span:.3f}\nerrors/s: {errors / span:.3f}")
        for percent in 50, 99:
            print(f"p{percent}: {1000 * seconds[min(len(seconds) - 1, len(seconds) * percent // 100)]:.3f}ms")
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGINT, report)
    for i in range(workers):
        threading.Thread(target=work, args=(i,), daemon=True).start()
    while True:
        signal.pause()
