"""Reads documents that arrive: worker.py RATE KIND."""
import io
import sys

import paced
from PyPDF2 import PdfFileReader, PdfFileWriter

rate, kind = sys.argv[1:]
writer, out = PdfFileWriter(), io.BytesIO()
writer.addBlankPage(200, 200)
writer.write(out)
document = out.getvalue()
if kind == "odd":
    document += b" " * 120_000


def read():
    try:
        return PdfFileReader(io.BytesIO(document), strict=False).getNumPages()
    except Exception:
        return 0


paced.run(lambda: read, float(rate), 1)
