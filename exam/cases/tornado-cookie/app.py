"""Greets a visitor by the name in a cookie."""
import asyncio

import tornado.web


class Greeting(tornado.web.RequestHandler):
    def get(self):
        self.write(f"Hello, {self.get_cookie('name', 'visitor')[:20]}\n")


async def main():
    tornado.web.Application([("/", Greeting)]).listen(8080, "127.0.0.1")
    await asyncio.Event().wait()


asyncio.run(main())
