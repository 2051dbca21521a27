"""A web application that hands out encrypted tokens, with AES as the benchmark does it or with the library for it."""
import os
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flask import Flask

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "pyperformance/data-files/benchmarks/bm_crypto_pyaes"))
import run_benchmark  # noqa: E402

app = Flask(__name__)


@app.get("/token/pyaes")
def pure():
    spent = run_benchmark.bench_pyaes(1)
    return {"bytes": len(run_benchmark.CLEARTEXT), "spent": spent}


@app.get("/token/openssl")
def native():
    for _ in range(2):
        aes = Cipher(algorithms.AES(run_benchmark.KEY), modes.CTR(bytes(16))).encryptor()
        aes.update(run_benchmark.CLEARTEXT)
    return {"bytes": len(run_benchmark.CLEARTEXT)}
