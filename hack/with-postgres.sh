#!/usr/bin/env bash
# Runs a command with a PostgreSQL server of its own, of Debian's package postgresql, and with its URL in
# FLEETINDEX_POSTGRES: hack/with-postgres.sh go test ./pkg/fleetindex
set -euo pipefail

bin="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)"
if [[ ! -x "$bin/initdb" ]]; then
  echo "no PostgreSQL server; run: apt-get install postgresql" >&2
  exit 1
fi
# The server refuses to run as root.
as=()
dir="$(mktemp -d)"
if [[ "$(id -u)" == 0 ]]; then
  as=(runuser -u postgres --)
  chown postgres "$dir"
fi
trap '(cd / && "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null) || true; rm -rf "$dir"' EXIT
(
  cd /
  "${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >/dev/null
  # Only who is on this machine reaches it, by its socket; what it keeps is gone with it.
  "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -o "-k $dir -c listen_addresses= -c fsync=off" start >/dev/null
)
chmod 711 "$dir"
FLEETINDEX_POSTGRES="postgres:///postgres?host=$dir&user=postgres" "$@"
