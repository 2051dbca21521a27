"""Squid's helper: leaves each address as it is, after a look-up in a directory elsewhere that takes 100 ms."""
import sys
import time

for line in sys.stdin:
    time.sleep(0.1)
    print("OK", flush=True)
