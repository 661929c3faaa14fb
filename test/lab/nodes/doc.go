// Package nodes gives every cluster of a lab a machine of its own on one Linux
// machine: network, mount, process, host name and IPC namespaces, in which the
// usual paths (/run, /var/lib, /var/log) are private. It knows nothing of
// Kubernetes: it starts namespaces, joins them by a network, keeps programs
// running in them, and takes everything away again.
//
// The first process of a machine is labnode (test/lab/cmd/labnode), which calls
// RunMachine: it sets the namespaces up, starts the programs that it finds in
// the machine's folder, starts again those that end, and reaps. It ends when its
// standard input does, that is when the lab's process is gone, however that
// came about; and the kernel ends everything in its namespaces with it, shims
// and containers included, and takes the mounts, the network and the rules
// along. Control groups, a folder, and a few settings of the whole machine are
// left then; Stop and Remove put those in order.
//
// One more namespace, the wide network, holds a bridge. A pair of veth joins
// each machine to it as wan0. This machine has no interface there, so nothing of
// the lab's traffic leaves its namespaces. The fence of a managed cluster is a
// table in its own namespace: at prerouting, before any Service address is
// translated, only replies pass; at postrouting new connections pass to the
// hub's address and to its load balancers' addresses only.
//
// Tests reach a machine's API server through a socket that listens on
// this machine's loopback and that the machine's first process inherits. Nothing
// on the lab's network can reach it. Dial opens other connections from inside a
// machine's network.
package nodes
