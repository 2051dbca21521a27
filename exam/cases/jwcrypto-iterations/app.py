"""Opens a letter that is sealed by a password."""
import json

import waitress
from jwcrypto import common, jwe, jwk

KEY = jwk.JWK.from_password("correct horse")


def letter(iterations):
    """A token as someone without the password can make it."""
    parts = [{"alg": "PBES2-HS256+A128KW", "enc": "A128CBC-HS256", "p2s": "c2FsdHNhbHQ", "p2c": iterations}]
    parts = [json.dumps(parts[0]).encode(), bytes(40), bytes(16), bytes(32), bytes(16)]
    return ".".join(common.base64url_encode(part) for part in parts)


LETTERS = {"/open/odd": letter(200_000), "/open/ordinary": letter(4096)}


def app(environ, start_response):
    token = jwe.JWE()
    try:
        token.deserialize(LETTERS[environ["PATH_INFO"]], key=KEY)
        body = b"opened\n"
    except jwe.InvalidJWEData:
        body = b"not for us\n"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


waitress.serve(app, host="127.0.0.1", port=8080, threads=4)
