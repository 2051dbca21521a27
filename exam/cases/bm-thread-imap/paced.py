"""Does a job at a rate, and prints throughput and p99 (from when each job was due) after SIGINT."""
import signal
import time


def paced(job, per_second):
    stop = []
    signal.signal(signal.SIGINT, lambda *_: stop.append(True))
    start, took = time.monotonic(), []
    while not stop:
        due = start + len(took) / per_second
        time.sleep(max(0, due - time.monotonic()))
        job()
        took.append(time.monotonic() - due)
    seconds = time.monotonic() - start
    took.sort()
    print(f"throughput {len(took) / seconds:.3f}")
    print(f"p99 {took[int(len(took) * 0.99)]:.6f}s")
