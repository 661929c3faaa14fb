#!/usr/bin/env bash
# Writes the texts that are made of the code: METRICS.md, the flags of each process, and what the chart renders.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -count=1 -run '^TestMetrics$' ./test/rules -update
go test -count=1 -run '^TestFlags$' ./cmd/cluster-proxy -update
go test -count=1 -run '^TestRendered$' ./test/chart -update
