"""Runs hackbench as a job at a rate, with the number of groups that is given."""
import subprocess
import sys

from paced import paced

COMMAND = ["hackbench", "--pipe", "--threads", "--loops", "100", "--groups", sys.argv[1]]


def job():
    subprocess.run(COMMAND, check=True, stdout=subprocess.DEVNULL)


paced(job, 6)
