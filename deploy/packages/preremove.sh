#!/bin/sh
# Debian: "remove" or "upgrade"; RPM: the number of versions that will remain.
set -e
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable perfdoctor-exporter.service perfdoctor-exporter.socket || true
		if [ -d /run/systemd/system ]; then systemctl stop perfdoctor-exporter.service perfdoctor-exporter.socket; fi
	fi
	;;
esac
