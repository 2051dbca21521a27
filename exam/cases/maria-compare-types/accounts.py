"""Looks accounts up at a fixed rate: accounts.py PORT RATE WORKERS KIND. KIND is the type of the number: int or str."""
import random
import sys

import paced
import pymysql


def main():
    port, rate, workers, kind = sys.argv[1:]
    convert = {"int": int, "str": str}[kind]

    def worker():
        db = pymysql.connect(host="127.0.0.1", port=int(port), user="bench", database="bench", autocommit=True)
        cursor = db.cursor()

        def call():
            cursor.execute("SELECT owner FROM accounts WHERE number = %s", (convert(random.randint(1, 100000)),))
            cursor.fetchall()

        return call

    paced.run(worker, float(rate), int(workers))


main()
