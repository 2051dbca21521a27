#!/bin/sh
# Starts a MariaDB server with data of its own, a database and a user bench: mariadb.sh DIRECTORY PORT [OPTION...]
set -e
dir=$1 port=$2
shift 2
mariadb-install-db --no-defaults --datadir="$dir/data" --skip-test-db --auth-root-authentication-method=normal >/dev/null
cat >"$dir/init.sql" <<'SQL'
CREATE USER bench@'%';
GRANT ALL ON *.* TO bench@'%';
CREATE DATABASE bench;
SQL
exec /usr/sbin/mariadbd --no-defaults --datadir="$dir/data" --socket="$dir/socket" --bind-address=127.0.0.1 \
	--port="$port" --skip-name-resolve --init-file="$dir/init.sql" --innodb-flush-log-at-trx-commit=2 "$@"
