#!/bin/sh
# Debian: "remove", then "purge" if nothing should be left. RPM has no purge, and its distributions keep a service's
# user.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
	rm -rf /var/lib/perfdoctor /etc/perfdoctor
	if getent passwd perfdoctor >/dev/null; then userdel perfdoctor; fi
fi
