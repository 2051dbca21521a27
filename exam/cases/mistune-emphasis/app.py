"""A page of comments, written in Markdown."""
import flask
import mistune
import waitress

LINE = "*starred" + "\\\\" * 11  # a path of a shared folder, and a star that is never closed
app = flask.Flask(__name__)
markdown = mistune.create_markdown()


@app.get("/comments/<int:count>")
def comments(count):
    return "<hr>".join(markdown(f"Comment {n}\n\n{LINE}") for n in range(count))


@app.get("/ordinary/<int:count>")
def ordinary(count):
    return "<hr>".join(markdown(f"Comment {n}\n\nThis is *starred*, and in `C:\\`") for n in range(count))


waitress.serve(app, host="127.0.0.1", port=8080, threads=4)
