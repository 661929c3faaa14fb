# Every target is what a developer types; "make help" lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# Tests that start whole clusters or fleets of agents, for minutes, or build Prometheus; everything else takes seconds per package.
LAB_TESTS := ./test/lab ./test/e2e
LONG_TESTS := ./test/agents ./test/alerts ./test/e2e/tokens
# Tests that mark themselves by long.Test(t), in the packages of $(1), as a regular expression: scenarios in which whole components come, go or are
# replaced, or everything is attacked; attacks with many GiB or connections; the page in a browser. `make test` leaves them to `make test-long`.
long = ^($(shell awk -F'[^A-Za-z0-9]+' '/^func Test/ {test = $$2} /^\tlong\.Test\(t\)/ {print test}' $(addsuffix /*_test.go,$(1)) | paste -sd'|'))$$
LONG_PACKAGES = $(shell grep -rl --include='*_test.go' '^	long\.Test(t)' pkg | xargs -n1 dirname | sort -u | sed 's,^,./,')
SKIP_LONG := TEST_LONG=skip
# The tests of LONG_TESTS that are smaller, or lenient about times, under the race detector.
SCALED := ^Test(ReconnectStorm|IdleCrowd|StalledPeersDoNotDelayOthers)$$
UNIT_TESTS = $(shell go list ./... | grep -v -e /test/e2e -e /test/lab$$ -e /test/agents$$ -e /test/alerts$$)
# The race detector needs a C compiler; RACE= does without both.
RACE ?= -race
TESTFLAGS ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/cluster-proxy, and the kubectl plugin with its shell completion
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
	install -m 755 cmd/kubectl-clusterproxy/kubectl_complete-clusterproxy bin/

.PHONY: test
test: test-unit test-lab ## Run the tests of every day, which need Go only: packages first, then scenarios in a lab of whole clusters

.PHONY: test-unit
test-unit: ## Run the tests that take seconds
	@# Tests build commands and examples. With empty caches that takes longer than go test lets a package take, when several do it at once.
	go build ./cmd/... ./examples/...
	$(SKIP_LONG) go test $(RACE) -timeout=20m $(TESTFLAGS) $(UNIT_TESTS)

# How often test-stress runs each test.
STRESS ?= 10

# The packages that HTTP and TLS of the standard library carry most of, with the next release of Go. Modules stay as they are.
NEXT_GO ?= go1.27.3
NEXT_PACKAGES := ./pkg/httprelay ./pkg/agentclient ./pkg/connect ./pkg/carrier/...

.PHONY: test-next
test-next: ## Run the tests of the packages on a request's path with the next release of Go, NEXT_GO
	GOTOOLCHAIN=$(NEXT_GO) go test $(TESTFLAGS) $(NEXT_PACKAGES)

.PHONY: test-stress
test-stress: ## Run the tests that take seconds STRESS times, in an order at random and several packages at once: what needs luck fails here first
	$(SKIP_LONG) go test -p=6 -count=$(STRESS) -shuffle=on -timeout=60m $(TESTFLAGS) $(UNIT_TESTS)

.PHONY: test-lab
test-lab: ## Run the shorter scenarios in a lab of whole clusters (needs Go only; the first time builds Kubernetes, for minutes)
	$(SKIP_LONG) go test $(RACE) -count=1 -timeout=60m $(TESTFLAGS) $(LAB_TESTS)

.PHONY: test-long
test-long: test-long-unit test-agents test-long-lab ## Run crowds of agents, and the scenarios in which everything comes, goes and is attacked, in such a lab

.PHONY: test-all
test-all: test-all-unit test-agents test-all-lab ## Run what test and test-long run, with one lab for both, as CI does

.PHONY: test-all-unit
test-all-unit:
	go build ./cmd/... ./examples/...
	go test $(RACE) -timeout=20m $(TESTFLAGS) $(UNIT_TESTS)

.PHONY: test-all-lab
test-all-lab:
	go test $(RACE) -count=1 -timeout=60m $(TESTFLAGS) $(LAB_TESTS)

.PHONY: test-long-unit
test-long-unit:
	go test $(RACE) -count=1 -run '$(call long,$(LONG_PACKAGES))' $(TESTFLAGS) $(LONG_PACKAGES)

.PHONY: test-agents
test-agents:
	go test $(RACE) -count=1 -timeout=30m $(TESTFLAGS) $(LONG_TESTS)

.PHONY: test-long-lab
test-long-lab:
	go test $(RACE) -count=1 -timeout=60m -run '$(call long,./test/e2e)' $(TESTFLAGS) ./test/e2e

.PHONY: test-scale
test-scale: ## Run the tests of many agents and of times at full size, without the race detector (needs 13,000 files: ulimit -n)
	go test -count=1 -run '$(SCALED)' $(TESTFLAGS) ./test/agents

.PHONY: e2e
e2e: ## Run the scenarios on real nodes, with the chart and the image (needs root on Linux, containerd and runc; LAB_OCM=0.16.0 for the oldest OCM)
	E2E_NODES=1 go test -p=1 -count=1 -timeout=60m $(TESTFLAGS) ./test/lab ./test/e2e/...

.PHONY: e2e-nodes
e2e-nodes: ## Run those scenarios on real nodes that could end differently there, as CI does
	E2E_NODES=differ go test -p=1 -count=1 -timeout=60m $(TESTFLAGS) ./test/lab ./test/e2e

.PHONY: e2e-move
e2e-move: ## Move from OCM's own cluster-proxy and back under traffic; writes test/e2e/move.txt
	E2E_NODES=1 E2E_MOVE=$(CURDIR)/test/e2e/move.txt go test -v -count=1 -timeout=40m -run TestMoveThereAndBack $(TESTFLAGS) ./test/e2e

.PHONY: e2e-karmada
e2e-karmada: ## Run the commands of Karmada's documentation in a lab; writes test/e2e/karmada.txt
	E2E_KARMADA=$(CURDIR)/test/e2e/karmada.txt go test -v -count=1 -timeout=40m -run TestKarmada $(TESTFLAGS) ./test/e2e

.PHONY: e2e-clients
e2e-clients: ## Run what people do with a dozen programs, straight and through every endpoint (as e2e, with npm and python3-kubernetes); writes test/e2e/clients.txt
	E2E_NODES=1 E2E_CLIENTS=$(CURDIR)/test/e2e/clients.txt go test -v -count=1 -timeout=90m -run TestClientPrograms $(TESTFLAGS) ./test/e2e

.PHONY: pictures
pictures: ## Make the screenshots and recordings of the documents in a lab (needs Chromium); writes docs/pictures
	E2E_PICTURES=$(CURDIR)/docs/pictures go test -v -count=1 -timeout=40m -run TestPictures $(TESTFLAGS) ./test/e2e
	E2E_PICTURES=$(CURDIR)/docs/pictures go test -count=1 -run TestPageSearches ./pkg/proxyapi

.PHONY: e2e-kubectl
e2e-kubectl: ## Run each command of kubectl that takes a name with NAME@CLUSTER of every kind, in a lab, and print the table
	E2E_KUBECTL=1 go test -v -count=1 -timeout=40m -run 'TestFleetKubectlNamesTheCluster$$' $(TESTFLAGS) ./test/e2e

.PHONY: e2e-skew
e2e-skew: ## Run the scenarios of fleet views in a lab in which one cluster's kube-apiserver is a minor release older
	E2E_OLDER=2nd-cluster go test $(RACE) -v -count=1 -timeout=40m -run '^(TestFleet|TestHubIsItsOwnCluster|TestAnswersAreEqual)' $(TESTFLAGS) ./test/e2e

.PHONY: e2e-faults
e2e-faults: ## Break the network between a cluster and the hub in many ways; writes test/e2e/faults.txt
	E2E_NODES=1 E2E_FAULTS=$(CURDIR)/test/e2e/faults.txt go test -v -count=1 -timeout=40m -run TestFaults $(TESTFLAGS) ./test/e2e

.PHONY: e2e-kubernetes
e2e-kubernetes: ## Run Kubernetes' own specs of the API and of kubectl, straight and through every endpoint (as e2e); writes test/e2e/kubernetes.txt
	E2E_NODES=1 E2E_KUBERNETES=$(CURDIR)/test/e2e/kubernetes.txt go test -v -count=1 -timeout=90m -run TestKubernetesSpecs $(TESTFLAGS) ./test/e2e

# The packages that read and write bytes of a protocol, or certificates: the order of bytes and the assembly of an architecture show there.
FOREIGN_PACKAGES := ./pkg/carrier ./pkg/frames ./pkg/pki

.PHONY: image
image: ## Pack bin/cluster-proxy.tar, the container image for amd64, arm64, ppc64le and s390x (ARCH=amd64 for one, which is quicker)
	go run ./hack/release image $(if $(ARCH),-arch=$(ARCH))

.PHONY: image-start
image-start: ## Pack it, and start its binary for each architecture, others than this machine's by qemu-user-static; then test what reads and writes bytes on those
	go run ./hack/release image -start
	for arch in ppc64le s390x; do CGO_ENABLED=0 GOARCH=$$arch go test -exec=qemu-$$arch-static $(FOREIGN_PACKAGES) || exit; done

# The folder of a release. ARCH=amd64 and PLATFORMS=linux/amd64 make less of one, which is quicker.
DIST ?= dist

.PHONY: release
release: ## Write dist/, the release VERSION for REGISTRY: image, chart, kubectl plugin, SBOMs, provenance, checksums, signatures by the key in the file KEY
	go run ./hack/release build -dist=$(DIST) -version=$(VERSION) -registry=$(REGISTRY) $(if $(KEY),-key=$(KEY)) $(if $(ARCH),-arch=$(ARCH)) $(if $(PLATFORMS),-platforms=$(PLATFORMS)) $(if $(FILES_URL),-url=$(FILES_URL))

.PHONY: publish
publish: ## Push what release wrote to REGISTRY
	go run ./hack/release publish -dist=$(DIST) -registry=$(REGISTRY)

.PHONY: mirror
mirror: ## Make what release wrote one file for a site without the internet; started there with a registry, it pushes to it (PLATFORM=linux/amd64 of the machine there)
	go run ./hack/release mirror -dist=$(DIST) $(if $(KEY),-key=$(KEY)) $(if $(PLATFORM),-platform=$(PLATFORM))

.PHONY: conformance
conformance: ## Run konnectivity's own tests against our binaries
	go test -tags=conformance -count=1 -timeout=60m $(TESTFLAGS) ./test/conformance/...

.PHONY: conformance-upstream
conformance-upstream: ## Run the e2e suite of OCM's own cluster-proxy against the chart (as e2e); writes test/conformance/upstream.txt
	CONFORMANCE_UPSTREAM=$(CURDIR)/test/conformance/upstream.txt go test -v -count=1 -timeout=40m $(TESTFLAGS) ./test/conformance/upstream

.PHONY: bench
bench: ## Measure the data plane beside konnectivity, the bare relay and direct TCP; writes test/bench/results.txt (BENCH_ROUNDS=1 for a glance, BENCH_ONLY=regexp for some rows, which writes nothing). BASE=commit measures the processes of that commit beside today's in place of the others, and writes base.txt
	hack/awake.sh go run ./test/bench -rounds=$(or $(BENCH_ROUNDS),3) $(if $(BASE),-base=$(BASE)) $(if $(BENCH_ONLY),-only='$(BENCH_ONLY)',-out=$(CURDIR)/test/bench/$(if $(BASE),base,results))

.PHONY: bench-loss
bench-loss: ## Measure what 1 % loss at 50 ms does to users who share connections, and what 80 ms do to downloads; root on Linux, writes test/bench/loss.txt and roundtrip.txt
	go test -tags=benchloss -count=1 -timeout=15m -v ./test/loss

.PHONY: bench-api
bench-api: ## Measure the HTTP path beside direct access to the same kube-apiserver, then again with 20 ms of round trip (BENCH_ROUNDS=1 for a glance, BENCH_ROWS=regexp for some rows, which writes nothing)
	$(if $(BENCH_ROWS),,BENCH_GROUND="$$(go run ./test/bench -ground)" || exit; export BENCH_GROUND;) \
	$(if $(BENCH_ROWS),,BENCH_OUT=$(CURDIR)/test/bench/api) hack/awake.sh go test -tags=benchapi -count=1 -timeout=40m -v -run TestAPIBenchmark ./test/bench/api && \
	BENCH_DELAY=20ms $(if $(BENCH_ROWS),,BENCH_OUT=$(CURDIR)/test/bench/api-20ms) hack/awake.sh go test -tags=benchapi -count=1 -timeout=20m -v -run TestAPIBenchmark ./test/bench/api

.PHONY: bench-fleet
bench-fleet: ## Measure views of many clusters beside the same requests to each of them; writes test/bench/fleet.txt (BENCH_ROUNDS=1 for a glance, BENCH_ROWS=regexp for some rows, which writes nothing; those of "members" need no lab)
	$(if $(BENCH_ROWS),,BENCH_GROUND="$$(go run ./test/bench -ground)" || exit; export BENCH_GROUND;) \
	$(if $(BENCH_ROWS),,BENCH_OUT=$(CURDIR)/test/bench/fleet) hack/awake.sh go test -tags=benchfleet -count=1 -timeout=60m -v -run TestFleetBenchmark ./test/bench/fleet

.PHONY: bench-index
bench-index: ## Measure the fleet index with 5,060 simulated clusters and 1,000,000 rows; writes test/bench/index.txt (INDEX_ROWS=100000 and INDEX_CLUSTERS=500 for a glance, which writes nothing)
	hack/awake.sh go run ./test/bench/index $(if $(INDEX_ROWS),-rows=$(INDEX_ROWS)) $(if $(INDEX_CLUSTERS),-clusters=$(INDEX_CLUSTERS)) $(if $(INDEX_ROWS)$(INDEX_CLUSTERS),,-out=$(CURDIR)/test/bench/index)

.PHONY: scale
scale: ## Simulate SCALE clusters (50, 500 or 5000, which is the default) with our real processes and measure what they cost; writes test/scale/results.txt (SCALE_ROWS=regexp for some rows, which join their column; SCALE_AGENTS for agents of fewer clusters, SCALE_MISSING=10m for a proxy server that is missing for longer than two minutes)
	go run ./test/scale -clusters=$(or $(SCALE),5000) $(if $(SCALE_AGENTS),-agents=$(SCALE_AGENTS)) $(if $(SCALE_MISSING),-missing=$(SCALE_MISSING)) $(if $(SCALE_ROWS),-rows='$(SCALE_ROWS)') -out=$(CURDIR)/test/scale/results

.PHONY: soak
soak: ## Run traffic of every kind in a lab for HOURS (1, or fractions), with faults at random, and fail on what grows; writes test/soak/results.txt (SOAK_SEED for the same faults again, INDEX=1 for a hub with a fleet index)
	SOAK_HOURS=$(or $(HOURS),1) SOAK_INDEX=$(INDEX) SOAK_OUT=$(CURDIR)/test/soak/results.txt go test -v -count=1 -timeout=0 -run 'TestSoak$$' $(TESTFLAGS) ./test/soak

.PHONY: lint
lint: ## Look for mistakes: go vet, staticcheck
	go vet ./...
	go vet -tags=benchapi,benchfleet,benchloss,conformance ./test/...
	go tool staticcheck ./...

.PHONY: verify
verify: ## Check formatting, generated files and modules; writes nothing
	hack/verify.sh

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what the code calls: govulncheck, which needs its database on the internet
	go tool govulncheck ./...

.PHONY: update
update: ## Fix what verify finds
	hack/update.sh

.PHONY: generate
generate: ## Generate code and the CRD from the API types
	hack/update-generated.sh
	hack/update-crds.sh

.PHONY: demo
demo: ## Show it: a hub, two managed clusters that nobody can dial, kubectl and a Go program that reach them (ONCE=1 stops them at the end)
	go run ./test/demo $(if $(ONCE),--once)

.PHONY: demo-down
demo-down: ## Stop what demo left running
	go run ./test/lab/cmd/lab down

.PHONY: clean
clean: ## Remove what build and release made (the lab's programs stay in the user's cache folder)
	rm -rf bin dist
