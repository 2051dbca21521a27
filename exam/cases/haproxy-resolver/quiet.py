"""A name server that takes questions and does not answer: quiet.py PORT."""
import socket
import sys

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    sock.recvfrom(4096)
