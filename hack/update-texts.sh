#!/usr/bin/env bash
# Writes the texts that are made of the code: METRICS.md, the flags of each process, what the chart renders, what its schema says of values, and
# pages of docs/reference.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -count=1 -run '^TestMetrics$' ./test/rules -update
go test -count=1 -run '^TestFlags$' ./cmd/cluster-proxy -update
go test -count=1 -run '^Test(Rendered|SchemaDescribes)$' ./test/chart -update
go test -count=1 -run '^TestReference$' ./test/docs -update
go test -count=1 -run '^TestPoliciesAtEveryEndpoint$' ./pkg/proxyapi -update
