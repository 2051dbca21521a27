# Threads that wait for one thing each, for as long as standard input is open.
import fcntl, os, select, socket, subprocess, sys, tempfile, threading, time

server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
port = server.getsockname()[1]
client = socket.create_connection(("127.0.0.1", port))
conn, _ = server.accept()
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 0))
asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asks.connect(silent.getsockname())
full = socket.create_connection(("127.0.0.1", port))
unread, _ = server.accept()
locked = tempfile.NamedTemporaryFile(prefix="locked-")
fcntl.flock(locked, fcntl.LOCK_EX)
other = open(locked.name)
lock = threading.Lock()
lock.acquire()
child = subprocess.Popen(["sleep", "100"])
reader, writer = os.pipe()
stuck = subprocess.Popen(["sleep", "100"], stdin=reader)
os.close(reader)

def fill(write):
    while True:
        write(b"x" * 65536)

def spin():
    while True:
        pass

for work in [
    lambda: client.recv(1), lambda: conn.recv(1), server.accept, lambda: asks.recv(1), lambda: fill(full.sendall),
    lambda: fcntl.flock(other, fcntl.LOCK_EX), lock.acquire, child.wait, lambda: fill(lambda b: os.write(writer, b)),
    lambda: time.sleep(100), lambda: select.select([], [], [], 100), lambda: select.select([client, conn], [], []),
]:
    threading.Thread(target=work, daemon=True).start()
print(port, silent.getsockname()[1], stuck.pid, child.pid, locked.name, flush=True)
sys.stdin.read()
child.kill()
stuck.kill()
