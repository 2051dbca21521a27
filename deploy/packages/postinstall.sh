#!/bin/sh
# Debian calls it with "configure" and the previous version, RPM with the number of versions now installed.
set -e

if ! getent passwd perfdoctor >/dev/null; then
	useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin \
		--comment 'perfdoctor exporter' perfdoctor
fi
chgrp perfdoctor /etc/perfdoctor

# In a chroot or an image systemd does not run; enabled units start with it later.
running() { [ -d /run/systemd/system ]; }
if ! command -v systemctl >/dev/null; then exit 0; fi
if running; then systemctl daemon-reload; fi

case "$1:$2" in
configure:) # Debian: a new service runs. It listens on 127.0.0.1 only.
	systemctl --quiet enable perfdoctor-exporter.socket perfdoctor-exporter.service
	if running && ! systemctl start perfdoctor-exporter.service; then
		echo 'perfdoctor: the exporter did not start, journalctl -u perfdoctor-exporter says why' >&2 # no reason to be half installed
	fi
	;;
1:*) # RPM: the distribution's presets say what a new service does.
	systemctl --quiet preset perfdoctor-exporter.socket perfdoctor-exporter.service || true
	;;
configure:* | [2-9]:*)
	if running; then systemctl try-restart perfdoctor-exporter.service; fi
	;;
esac
