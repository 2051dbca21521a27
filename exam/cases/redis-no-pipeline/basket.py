"""Reads baskets of 40 prices at a fixed rate: basket.py HOST RATE WORKERS MODE. MODE is single or pipeline."""
import random
import sys

import paced
import redis


def main():
    host, rate, workers, mode = sys.argv[1:]

    def worker():
        db = redis.Redis(host=host, port=6380, single_connection_client=True)

        def call():
            prices = db.pipeline(transaction=False) if mode == "pipeline" else db
            for _ in range(40):
                prices.get(f"price:{random.randint(1, 10000)}")
            if mode == "pipeline":
                prices.execute()

        return call

    paced.run(worker, float(rate), int(workers))


main()
