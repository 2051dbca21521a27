"""Does a job at a rate, and prints throughput and p99 (from when each job was due) on SIGINT."""
import signal
import sys
import time


def paced(job, per_second):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start, took = time.monotonic(), []
    try:
        while True:
            due = start + len(took) / per_second
            time.sleep(max(0, due - time.monotonic()))
            job()
            took.append(time.monotonic() - due)
    except KeyboardInterrupt:
        seconds = time.monotonic() - start
        took.sort()
        p99 = took[int(len(took) * 0.99)] if took else seconds
        print(f"throughput {len(took) / seconds:.3f}")
        print(f"p99 {p99:.6f}s")
        sys.exit(0)
