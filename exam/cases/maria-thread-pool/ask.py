"""Executes a statement at a fixed rate: ask.py PORT RATE WORKERS STATEMENT."""
import sys

import paced
import pymysql


def main():
    port, rate, workers, statement = sys.argv[1:]

    def worker():
        db = pymysql.connect(host="127.0.0.1", port=int(port), user="bench", database="bench", autocommit=True)
        cursor = db.cursor()

        def call():
            cursor.execute(statement)
            cursor.fetchall()

        return call

    paced.run(worker, float(rate), int(workers))


main()
