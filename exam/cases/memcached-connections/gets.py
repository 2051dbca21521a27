"""Gets values at a fixed rate, over a connection for each worker: gets.py HOST PORT RATE WORKERS."""
import random
import sys

import paced
from pymemcache.client.base import Client


def main():
    host, port, rate, workers = sys.argv[1:]

    def worker():
        cache = Client((host, int(port)), timeout=2)

        def call():
            key = f"page:{random.randint(1, 1000)}"
            if cache.get(key) is None:
                cache.set(key, b"x" * 1000)

        return call

    paced.run(worker, float(rate), int(workers))


main()
