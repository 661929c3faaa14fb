#!/usr/bin/env bash
# awake.sh COMMAND...: runs a command while the processors wait for work without
# sleeping (the kernel's PM QoS, /dev/cpu_dma_latency at 0 µs). A virtual machine's
# sleeping core takes 50 to 200 µs to wake, or none at all if the scheduler happens
# to choose the other one: latencies of one run then differ by a factor of four,
# whatever is measured. Loops of idle priority would do that as well, but a core
# that runs one never looks for work that waits at another: 16 workers left a
# quarter of the machine to them.
set -euo pipefail
if { exec 3>/dev/cpu_dma_latency; } 2>/dev/null; then
	printf '\0\0\0\0' >&3 # 32 bits; it holds as long as the file is open
	export CORES_AWAKE=yes
else
	echo "awake.sh: /dev/cpu_dma_latency cannot be written (it takes root), so cores may sleep between two steps of what is measured" >&2
fi
exec "$@"
