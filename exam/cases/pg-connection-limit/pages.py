"""Asks for a report over a connection of its own each time, as scripts do: pages.py HOST PORT RATE WORKERS."""
import sys

import paced
import psycopg2


def main():
    host, port, rate, workers = sys.argv[1:]

    def call():
        db = psycopg2.connect(host=host, port=port, user="bench", dbname="postgres")
        try:
            cursor = db.cursor()
            cursor.execute("SELECT count(*), sum(length(note)) FROM report")
            cursor.fetchall()
            cursor.execute("SELECT pg_sleep(0.2)")  # what the page waits for with its connection open
        finally:
            db.close()

    paced.run(lambda: call, float(rate), int(workers))


main()
