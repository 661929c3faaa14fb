#!/usr/bin/env bash
# awake.sh COMMAND...: runs a command while loops of idle priority keep the
# processors from sleeping. A virtual machine's sleeping core takes 50 to 200 µs
# to wake, or none at all if the scheduler happens to choose the other one:
# latencies of one run then differ by a factor of four, whatever is measured.
set -euo pipefail
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT
if command -v chrt >/dev/null; then
	for _ in $(seq "$(nproc)"); do
		chrt -i 0 bash -c 'while :; do :; done' &
		loops+=($!)
	done
	export CORES_AWAKE=yes
else
	echo "awake.sh: chrt (util-linux) is missing, so cores may sleep between two steps of what is measured" >&2
fi
"$@"
