"""A worker that scores a few small models with numpy for each job."""
import numpy

from paced import paced

model = numpy.random.default_rng(7).random((256, 256))


def job():
    state = model
    for _ in range(30):
        state = state @ model
        state /= state.max()


paced(job, 10)
