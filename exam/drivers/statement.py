"""Executes the statements of a file at a fixed rate: statement.py HOST PORT RATE WORKERS FILE.

%(n)s in the statements is a random number of 1 to 100000. Each call is a transaction.
"""
import random
import sys

import paced
import psycopg2


def main():
    host, port, rate, workers, name = sys.argv[1:]
    with open(name) as file:
        text = file.read()

    def worker():
        db = psycopg2.connect(host=host, port=port, user="bench", dbname="postgres")
        cursor = db.cursor()

        def call():
            cursor.execute(text, {"n": random.randint(1, 100000)})
            if cursor.description:
                cursor.fetchall()
            db.commit()

        return call

    paced.run(worker, float(rate), int(workers))


main()
