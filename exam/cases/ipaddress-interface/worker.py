"""Counts the interfaces that are seen in a list of hosts: worker.py RATE COUNT."""
import ipaddress
import sys

import paced

rate, count = sys.argv[1:]
seen = [ipaddress.IPv4Interface(f"10.0.{n // 250}.{1 + n % 250}/32") for n in range(int(count))]


def tally():
    times = {}
    for interface in seen:
        times[interface] = times.get(interface, 0) + 1
    return times


paced.run(lambda: tally, float(rate), 1)
