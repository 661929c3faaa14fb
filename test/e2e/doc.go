// Package e2e holds the scenarios that a user of the addon lives through. They
// take kubeconfigs and addresses, so the same scenarios run against the lab
// that TestMain starts and against any clusters where the addon is installed.
//
// Every scenario that is about the Kubernetes API runs once per door: straight
// at the managed kube-apiserver, which shows what right looks like, and through
// the proxy API. A scenario asserts the same of both.
//
// make test runs them in a lab without nodes. What only real nodes can show is
// skipped there: exit codes, entrypoints that agents really dial, gigabytes,
// NetworkPolicies, and what happens when things are taken away. make e2e runs
// everything on nodes (E2E_NODES), where the addon is the chart and the image.
//
// Promises about upgrades, scaling, evictions and killed pods are held under
// traffic (traffic_test.go): of clients that make short requests on connections
// of their own, of a watch and of an exec, no request that begins more than a
// second after something was killed may fail, the watch may lose no event, and
// nothing that is cut off may end as if it had come to its end. In an upgrade or
// an eviction, where pods are told before they go, nothing may fail at all.
//
// kubernetes_test.go runs Kubernetes' own specs of the API, of kubectl, and of exec
// and logs, on nodes, straight and through every endpoint, and wants each to pass, in
// kubernetes.txt, which names what is left out as well: make e2e-kubernetes.
//
// faults_test.go breaks the network between a cluster and the hub in many ways
// and writes down what clients notice, in faults.txt: make e2e-faults.
package e2e
