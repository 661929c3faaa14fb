// Package e2e holds the scenarios that a user of the addon lives through.
//
// Every scenario that is about the Kubernetes API runs once per endpoint: straight
// at the managed kube-apiserver, which shows what right looks like, and through
// the proxy API. A scenario asserts the same of both.
//
// All scenarios share one suite (package suite), and run in the order of the
// files. The comment of each says what it disturbs; it puts that back, so that the
// next one finds the clusters as they were.
//
// make test runs them in a lab without nodes. What only real nodes can show is
// skipped there: exit codes, entrypoints that agents really dial, gigabytes,
// NetworkPolicies, and what happens when things are taken away. make e2e runs
// everything on nodes (E2E_NODES), where the addon is the chart and the image.
//
// # Clusters that others made
//
// With E2E_HUB_KUBECONFIG the suite starts no lab. It takes clusters on which the
// addon is installed, in namespace open-cluster-management-addon of the hub:
//
//	E2E_HUB_KUBECONFIG  an administrator's kubeconfig of the hub
//	E2E_KUBECONFIGS     CLUSTER=FILE, comma separated: administrators' kubeconfigs of managed clusters
//	E2E_PROXY_SERVER    host:port of Service proxy-entrypoint, port 8090
//	E2E_PROXY_API       host:port of Service cluster-proxy-addon-user, port 9092
//	E2E_KUBECTL         kubectl, if it is not the one in PATH
//
// Hosts must be in the certificates, as 127.0.0.1 is, for instance of a kubectl
// port-forward. Each managed cluster needs a Deployment web in namespace default,
// whose pods have the label app=web, a shell with the cluster's name in the variable
// CLUSTER, a log that begins with it, and a port 8080 that answers with it. Scenarios that need
// a lab are skipped and say why; others change the addon's configuration and delete
// its pods. Do not run them where users are at work. In the end the users that
// the suite made are removed.
//
// To see it with a lab that another process started:
//
//	make build
//	go run ./test/lab/cmd/lab up --dir /tmp/e2e-lab
//	go run ./test/lab/cmd/lab install --dir /tmp/e2e-lab --set secretPropagationSeconds=10
//	env $(go run ./test/lab/cmd/lab env --dir /tmp/e2e-lab) go test -count=1 -timeout=30m -v ./test/e2e
//	go run ./test/lab/cmd/lab down --dir /tmp/e2e-lab
//
// # Traffic, specs and faults
//
// Promises about upgrades, scaling, evictions and killed pods are held under
// traffic: of clients that make short requests on connections of their own, of a
// watch and of an exec, no request that begins more than a second after something
// was killed may fail, the watch may lose no event, and nothing that is cut off
// may end as if it had come to its end. In an upgrade or an eviction, where pods
// are told before they go, nothing may fail at all.
//
// kubernetes_test.go runs Kubernetes' own specs of the API, of kubectl, and of exec
// and logs, on nodes, straight and through every endpoint, and wants each to pass, in
// kubernetes.txt, which names what is left out as well: make e2e-kubernetes.
//
// faults_test.go breaks the network between a cluster and the hub in many ways
// and writes down what clients notice, in faults.txt: make e2e-faults.
package e2e
