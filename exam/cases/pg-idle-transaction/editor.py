"""An editor of settings: reads and changes a row, shows it, and waits for a person to look: editor.py HOST PORT MODE.

psycopg2 opens a transaction with the first statement. Only MODE commit ends it before the wait.
"""
import sys
import time

import psycopg2


def main():
    host, port, mode = sys.argv[1:]
    db = psycopg2.connect(host=host, port=port, user="bench", dbname="postgres")
    cursor = db.cursor()
    while True:
        cursor.execute("UPDATE settings SET value = value + 1 WHERE name = 'rate' RETURNING value")
        print("value:", cursor.fetchone()[0], flush=True)
        if mode == "commit":
            db.commit()
        time.sleep(120)
        db.commit()


main()
