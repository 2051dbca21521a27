"""Does jobs one after the other, and says how fast when it is interrupted."""
import signal
import sys
import time

import six

pause, times = float(sys.argv[1]), []
began = time.monotonic()


def say(*_):
    times.sort()
    six.print_(f"jobs/s: {len(times) / (time.monotonic() - began):.2f}")
    six.print_(f"p99: {1000 * times[int(len(times) * 0.99)]:.2f}ms")
    sys.exit(0)


signal.signal(signal.SIGINT, say)
while True:
    start = time.monotonic()
    time.sleep(pause)
    times.append(time.monotonic() - start)
