"""Runs a command as a job at a fixed rate, one at a time: jobs.py RATE COMMAND..."""
import subprocess
import sys

import paced


def worker():
    return lambda: subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)


paced.run(worker, float(sys.argv[1]), 1)
