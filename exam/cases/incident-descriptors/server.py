"""A notification service: clients hold a connection open; others ask for the state."""
import asyncio

from aiohttp import web


async def state(request):
    return web.json_response({"clients": "many"})


async def wait(request):
    await asyncio.sleep(300)
    return web.Response(text="nothing new")


app = web.Application()
app.add_routes([web.get("/state", state), web.get("/wait", wait)])
web.run_app(app, host="127.0.0.1", port=8080, print=None)
