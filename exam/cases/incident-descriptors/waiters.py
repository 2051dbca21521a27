"""Opens connections that wait for news, as browsers do, and opens again those that are closed."""
import asyncio
import sys

import aiohttp


async def waiter(session):
    while True:
        try:
            async with session.get("http://127.0.0.1:8080/wait") as response:
                await response.read()
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(1)


async def main():
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(waiter(session) for _ in range(int(sys.argv[1]))))


asyncio.run(main())
