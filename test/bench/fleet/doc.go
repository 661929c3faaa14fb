// Package fleet measures views of many clusters beside the same requests to each of them, in a
// lab of three clusters and over simulated ones: make bench-fleet.
//
// Files:
//
//	fleet_test.go    the rows, and the lab
//	lists_test.go    lists and gets; frozen_test.go lists while a cluster is frozen
//	watches_test.go  watches and informers
//	members_test.go  rows over simulated members
//	cluster_test.go  a simulated member; child_test.go its process, and that of the view over it
//	pods_test.go     the pods that are listed and watched
//	figures_test.go  target figures, and the table
package fleet
