"""Records events in redis at a rate, and prints how many were recorded a second on SIGINT."""
import signal
import sys
import time

import redis

store = redis.Redis(port=6379)
done, tried, start = 0, 0, time.monotonic()
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    while True:
        time.sleep(max(0, start + tried / 200 - time.monotonic()))
        tried += 1
        try:
            store.rpush("events", b"x" * 1000)
            store.ltrim("events", -1000, -1)
            done += 1
        except redis.RedisError:
            pass
except KeyboardInterrupt:
    print(f"throughput {done / (time.monotonic() - start):.3f}")
    sys.exit(0)
