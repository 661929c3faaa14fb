// Package lab runs complete clusters on one machine for tests, demos and
// development: a hub and managed clusters, with real OCM between them.
//
// Each cluster has a real etcd, kube-apiserver, controller manager and
// scheduler. There are no nodes: kwok makes pods Running and gives them logs,
// exec, attach and port-forward. OCM's registration, placement and addon
// managers run on the hub, its klusterlet agent for each managed cluster, and
// clusters register by OCM's own bootstrap: by certificate signing request, or by
// OCM's gRPC server (Options.GRPC). The hub can be a managed cluster of itself
// (Options.LocalCluster, JoinHub).
//
// Two releases of OCM can be run (Options.OCM, or LAB_OCM): what people run, with
// both versions of the addon API and the webhook that converts them, and the oldest
// one that the addon is tested with, which has one version and no gRPC server. Each
// is built the first time that it is asked for. So are OCM's own cluster-proxy, from
// which users come, and its e2e suite (BuildUpstream, BuildUpstreamSuite).
//
// Our own pods do more than look Running. The pod runner takes the place of the
// kubelet for pods labelled open-cluster-management.io/addon=cluster-proxy: it
// runs each container's arguments with the addon's binary as a process on this
// machine, writes Secrets and ConfigMaps to files as a kubelet does (and again
// when they change), and lends the process the pod's own service account, so
// that the charts' arguments, volumes and RBAC are what is tested. Because all
// pods share one machine, container ports become free local ports, and Services
// of such pods become listeners that spread connections over them. The name of a headless
// Service becomes the addresses of four listeners, each with one of its pods behind it, or none,
// which ends connections at once.
//
// With Options.Nodes a cluster is whole: it has a machine of its own (package
// nodes) with containerd, kubelet, kube-proxy, CoreDNS and real pods, nobody can
// dial the managed ones, and Services of type LoadBalancer have addresses on the
// network between. The API is the same, and the scenarios of test/e2e run on
// both. The lab does itself what a network provider does: load balancers'
// addresses, and NetworkPolicies as rules of nft. The addon's binary is packed
// as an image of its own name with tag "lab". It needs root on Linux.
//
// So are the programs that people use on clusters (BuildClientPrograms): kubectl, helm, stern, k9s and
// others from Go modules, a client in JavaScript from npm and one in Python from Debian.
//
// A cluster can have a kube-apiserver of the minor release of Kubernetes before (Options.Older), which
// is built when it is asked for.
//
// Without nodes, nothing of this needs root or a container engine. The programs are built from
// Go modules once and kept in a cache; see BuildAssets. A lab is either a part
// of the process that calls Start and ends with it, or runs in the background:
// see Up and Down.
//
// # Ready-made programs
//
// A lab without nodes takes etcd, Kubernetes' programs, kwok and helm from the folders in
// LAB_BIN, and from envtest's in KUBEBUILDER_ASSETS, if each says that it has the version with which
// the lab is written: the same minor release of Kubernetes and etcd, the same kwok. One that has
// another version is named, and not used. Etcd, kube-apiserver and kubectl are one build, and what
// envtest's folder has; the controller manager and the scheduler are another one. If one program of a
// build is missing, all of it is built.
//
// The demo, and the command lab up, download envtest's programs where a control plane would have to
// be built: from GitHub, or from the mirror that LAB_DOWNLOAD names, against sums in download.go.
// LAB_DOWNLOAD=off builds all the same.
//
// PATH is not searched: what a test runs must not depend on what a machine happens to
// have. LAB_BIN=$PATH searches it. A lab with nodes takes nothing ready-made: it runs its
// programs in machines that have nothing else. OCM is always built.
package lab
