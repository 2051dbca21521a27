#!/bin/sh
# Starts a PostgreSQL server with data of its own: postgres.sh DIRECTORY PORT [OPTION...]
set -e
dir=$1 port=$2
shift 2
PATH=/usr/lib/postgresql/15/bin:$PATH
initdb --pgdata="$dir/data" --auth=trust --username=bench --no-sync --locale=C >/dev/null
echo 'host all all 10.0.0.0/8 trust' >>"$dir/data/pg_hba.conf"
exec postgres -D "$dir/data" -k "$dir" -p "$port" "$@"
