"""Sorts out the links of posts before they are followed: worker.py RATE KIND."""
import sys

import paced
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

rate, kind = sys.argv[1:]
links = {"odd": "https://" + "@" * 400 + "[", "ordinary": "https://ann:secret@[2001:db8::1]:8443/" + "a" * 400}


def check():
    for n in range(4):
        try:
            parse_url(links[kind] + f"?post={n}").host
        except LocationParseError:
            pass


paced.run(lambda: check, float(rate), 1)
