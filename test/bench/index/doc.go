// Command index measures the fleet index with thousands of clusters, whose agents it simulates: make bench-index. It writes a
// table with the target figures of the index's design beside it.
//
// # What is real
//
// The fleet index and the proxy API are whole processes of their own, with the options that the chart sets: the index keeps its rows
// in SQLite on disk, asks agents through package tunnel with a certificate of its role, and answers the proxy API over TLS. Users
// list and search by HTTP with tokens of the hub, as kubectl does.
//
// # What is not
//
// The hub's kube-apiserver has clusters and views in which nothing changes, and allows everything (hub.go). One process is the proxy
// server and all agents: it takes carriers, ends the TLS of each agent with that cluster's certificate, and speaks the protocol of
// package feed (agents.go, agent.go). Its agents allow every question, and prepare the messages of a first list before they are asked
// for it, because on real clusters that is not the hub's work. Heartbeats and sizes of messages are those of package
// proxyagent/index.
//
// # Files
//
//	main.go     flags, and the order of all
//	rows.go     what is measured
//	world.go    brings everything up and down, and asks it
//	table.go    target figures, and the table
//	process.go  the processes
//	hub.go      the hub's kube-apiserver
//	agents.go   the proxy server and the agents, and what they are ordered to do
//	agent.go    one agent
//	fleet.go    what the clusters have
//	certs.go    certificates
package main
