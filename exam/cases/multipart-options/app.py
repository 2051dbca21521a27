"""A form that is posted."""
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def save(request):
    form = await request.form()
    return PlainTextResponse(f"{len(form)} fields saved\n")


app = Starlette(routes=[Route("/save", save, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=8080, log_level="warning")
