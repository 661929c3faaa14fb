// Package e2e holds scenarios of the addon's users, from their first request to an
// uninstallation.
//
// Every scenario that is about the Kubernetes API runs once per endpoint: straight
// at the managed kube-apiserver, which shows what right looks like, and through
// the proxy API. A scenario asserts the same of both. Scenarios of fleet views compare
// what a view says with what all its clusters say themselves.
//
// All scenarios share one suite (package suite), and run in the order of the
// files. The comment of each says what it disturbs; it puts that back, so that the
// next one finds the clusters as they were.
//
// make test runs them in a lab without nodes. Tests that need real nodes are
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
// CLUSTER, a log that begins with it, and a port 8080 that answers with it. Scenarios
// that need a lab are skipped and say why; others change the addon's configuration and
// delete its pods. Do not run them where users are at work. At the end the suite
// removes the users that it made.
//
// To try this with a lab that another process started:
//
//	make build
//	go run ./test/lab/cmd/lab up --dir /tmp/e2e-lab
//	go run ./test/lab/cmd/lab install --dir /tmp/e2e-lab --set secretPropagationSeconds=10
//	env $(go run ./test/lab/cmd/lab env --dir /tmp/e2e-lab) go test -count=1 -timeout=30m -v ./test/e2e
//	go run ./test/lab/cmd/lab down --dir /tmp/e2e-lab
//
// # Versions of Kubernetes
//
// E2E_OLDER=2nd-cluster gives that cluster a kube-apiserver of the minor release before: make
// e2e-skew, which builds it. All scenarios can be run so; they expect nothing else.
//
// # Traffic, specs and faults
//
// E2E_RESTARTS=10 is how many rolling restarts TestFleetInformerOverRestarts makes; without it
// there is one.
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
// kubernetes.txt, which names what is left out as well: make e2e-kubernetes. Through a view of two
// clusters it runs those that only read. E2E_ENDPOINTS=view,fleet runs them straight and
// through these two only.
//
// clientprograms_test.go does with programs what people do in the first minutes, on nodes, straight and
// through every endpoint, and writes clients.txt: make e2e-clients. E2E_PROGRAMS=k9s,helm takes some of
// them, and writes nothing. Without E2E_CLIENTS it takes some steps of kubectl and fabric8's requests.
//
// faults_test.go breaks the network between a cluster and the hub in many ways
// and writes down what clients notice, in faults.txt: make e2e-faults.
//
// # Themes
//
// A user's requests:
//
//   - answers_test.go: the same answers as the kube-apiserver's.
//   - scenarios_test.go: exec, port-forward, kubectl.
//   - hubuser_test.go: users of the hub, and what audit logs say.
//     localcluster_test.go: the hub as its own managed cluster.
//   - fleet_test.go, fleetclients_test.go: lists, writes, streams and discovery of fleet views.
//     fleetwatch_test.go: informers of them. fleetviews_test.go: their clusters, which
//     freeze, and rights. fleetolder_test.go: a member of another version. fleetkubectl_test.go,
//     fleetkubectlobjects_test.go, fleetkubectlreads_test.go, fleetkubectlwrites_test.go: every
//     command of kubectl with NAME@CLUSTER.
//   - karmada_test.go: Karmada's documentation, command by command, on the hub.
//   - recordings_test.go, sessions_test.go: what users have open, and what is recorded of it.
//   - services_test.go: Services of managed clusters.
//   - clients_test.go, plugin_test.go, clusterprofile_test.go: Go clients, the kubectl
//     plugin, ClusterProfiles. passes_test.go: passes.
//   - kubernetes_test.go, kubernetesspecs_test.go: Kubernetes' own specs.
//   - clientprograms_test.go, clientprogramskubectl_test.go, clientprogramsmore_test.go: programs that
//     people use. clienthandshakes_test.go, clientruntime_test.go: those that a Go program plays.
//   - fleetindex_test.go, fleetindexequal_test.go, fleetindexwatch_test.go: the fleet index, and Tables of
//     views (fleettables_test.go). fleetindexpostgres_test.go: two replicas of it, as an example.
//   - tutorials_test.go: the commands of docs/tutorials. examples_test.go: those of the examples.
//     pictures_test.go: pictures of the documents.
//   - bundle_test.go: kubectl clusterproxy bundle.
//
// The addon's life:
//
//   - lifecycle_test.go: agents and proxy servers that come and go, and the configuration.
//     away_test.go: what kubectl says of a cluster without agents. nodes_test.go:
//     entrypoints and clusters that leave, with what else only real nodes show.
//   - deploymentconfig_test.go: settings of one cluster. portforward_test.go: agents in
//     PortForward mode.
//   - monitoring_test.go, prometheus_test.go: a Prometheus with the chart's alerts and
//     dashboards.
//   - rotation_test.go, signer_test.go, tlsprofile_test.go: certificates and TLS.
//   - upgrade_test.go: upgrades, killed pods, evictions, scaling. uninstall_test.go,
//     move_test.go, moveclients_test.go: uninstalling, and moves from upstream. release_test.go: what a release has,
//     installed from a registry.
//
// Attacks, faults, figures:
//
//   - hostile_test.go: package hostile.
//   - faults_test.go, sampler_test.go, downloads_test.go, ownconnections_test.go: a
//     broken network, and the clients that measure it.
package e2e
