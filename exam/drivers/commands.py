"""Sends a redis server the commands of a file at a fixed rate: commands.py HOST PORT RATE WORKERS FILE.

A call is all lines, a command each, with quotes as in a shell; %n is a random number of 1 to 100000. Each worker has a
connection that stays open.
"""
import random
import shlex
import sys

import paced
import redis


def main():
    host, port, rate, workers, name = sys.argv[1:]
    with open(name) as file:
        lines = [shlex.split(line) for line in file if line.strip()]

    def worker():
        db = redis.Redis(host=host, port=int(port), single_connection_client=True)

        def call():
            for words in lines:
                db.execute_command(*[w.replace("%n", str(random.randint(1, 100000))) for w in words])

        return call

    paced.run(worker, float(rate), int(workers))


main()
