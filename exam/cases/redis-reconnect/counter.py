"""Counts visits at a fixed rate: counter.py HOST RATE WORKERS MODE. MODE is each (a new client each time) or one."""
import sys

import paced
import redis


def main():
    host, rate, workers, mode = sys.argv[1:]

    def each():
        db = redis.Redis(host=host, port=6380)
        db.incr("visits")
        db.close()

    def one():
        return lambda db=redis.Redis(host=host, port=6380, single_connection_client=True): db.incr("visits")

    paced.run(one if mode == "one" else lambda: each, float(rate), int(workers))


main()
