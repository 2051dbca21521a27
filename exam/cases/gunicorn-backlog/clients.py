"""Browsers: each opens a page of eight elements with a connection for each: clients.py PORT RATE BROWSERS ELEMENTS."""
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import paced


def main():
    port, rate, browsers, elements = (int(n) for n in sys.argv[1:])

    def element(_):
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/element")
        status = connection.getresponse().status
        connection.close()
        if status != 200:
            raise OSError(status)

    def browser():
        pool = ThreadPoolExecutor(elements)
        return lambda: list(pool.map(element, range(elements)))

    paced.run(browser, rate, browsers)


main()
