"""Workers that mark their own tasks, each in a transaction: tasks.py PORT RATE WORKERS."""
import itertools
import sys
import time

import paced
import pymysql


def main():
    port, rate, workers = sys.argv[1:]
    numbers = itertools.count()

    def worker():
        number = next(numbers) % int(workers)
        db = pymysql.connect(host="127.0.0.1", port=int(port), user="bench", database="bench")
        cursor = db.cursor()

        def call():
            cursor.execute("UPDATE tasks SET seen = seen + 1 WHERE worker = %s", (number,))
            time.sleep(0.03)  # the work itself
            db.commit()

        return call

    paced.run(worker, float(rate), int(workers))


main()
