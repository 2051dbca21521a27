"""One fault in Python: shop.py FAULT sick|cured PORT BACKEND. README.md beside it says what each is."""
import asyncio
import concurrent.futures
import gc
import hashlib
import os
import queue
import re
import socket
import sys
import threading
import time

fault, sick, port = sys.argv[1], sys.argv[2] == "sick", int(sys.argv[3])
backend = sys.argv[4].rsplit(":", 1)

# --- regex
NAMES = re.compile(r"(\w+\s?)+;" if sick else r"\w+(?:\s\w+)*\s?;")
TEXT = "one of the names" + "a" * 8


def match_names():
    NAMES.match(TEXT)


# --- lock
seats = threading.Lock()
booked = 0


def audit():
    time.sleep(0.005)


def book_seat():
    global booked
    if not sick:
        audit()
    with seats:
        booked += 1
        if sick:
            audit()


# --- pool
pool = queue.Queue()


def open_pool():
    for _ in range(2 if sick else 16):
        pool.put(socket.create_connection((backend[0], int(backend[1]))))


def fetch_price():
    connection = pool.get()
    try:
        connection.sendall(b"price\n")
        connection.recv(64)
    finally:
        pool.put(connection)


# --- gc: what lives on is gone through again and again
class Order:
    def __init__(self, n):
        self.lines = [[i, n] for i in range(10)]
        self.me = self


kept = []


def fill_cache():
    kept.extend(Order(n) for n in range(50_000))
    if not sick:
        gc.freeze()


def make_orders():
    orders = [Order(n) for n in range(100)]
    if sick:
        gc.collect()
    return orders


# --- sized
workers = None


def digest_part():
    data = bytes(1 << 16)
    for _ in range(50):
        data = hashlib.md5(data).digest() * 4096


def digest_all():
    for job in [workers.submit(digest_part) for _ in range(8)]:
        job.result()


def open_workers():
    global workers
    workers = concurrent.futures.ThreadPoolExecutor(4 * os.cpu_count() if sick else 1, "digest")


# --- loop
async def retry_later(writer):
    if sick:
        time.sleep(0.02)
    else:
        await asyncio.sleep(0.02)
    writer.write(b"ok\n")


async def serve_loop(reader, writer):
    while await reader.readline():
        await retry_later(writer)


async def loop():
    async with await asyncio.start_server(serve_loop, "127.0.0.1", port) as server:
        await server.serve_forever()


def serve(connection, handle):
    with connection, connection.makefile("rb") as lines:
        while lines.readline():
            handle()
            connection.sendall(b"ok\n")


def main():
    handle, prepare = {
        "regex": (match_names, None), "lock": (book_seat, None), "pool": (fetch_price, open_pool),
        "gc": (make_orders, fill_cache), "sized": (digest_all, open_workers), "loop": (None, None),
    }[fault]
    if fault == "loop":
        return asyncio.run(loop())
    if prepare:
        prepare()
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, handle), daemon=True).start()


main()
