#!/bin/sh
# Makes a log of 3 MB, and a page of 3 kB of it, and starts nginx: start.sh DIRECTORY
set -e
cd "$1"
seq 1 60000 | awk '{ printf "%d.%03d INFO user=%d path=/item/%d status=200 ms=%d\n", $1 / 7, $1 % 997, $1 * 7919 % 4001, $1 * 31 % 977, $1 % 89 }' >log.txt
head -c 3000 log.txt >page.txt
gzip -1 -k log.txt
exec nginx -p "$1" -e stderr -c "$1/nginx.conf"
