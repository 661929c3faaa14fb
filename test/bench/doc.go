// Command bench measures the data plane beside what it is compared with, in one
// run on one machine: direct TCP, the bare relay (two processes that do nothing
// but copy between TLS connections; nothing that ends TLS on two hops can be
// much cheaper), stock konnectivity built from its module, and ours with
// konnectivity's client and with our own.
//
// Every figure is the median of interleaved rounds, because these machines are
// noisy and only ratios taken side by side mean something. CPU is what the
// relaying processes used (user and system, from the operating system), not the
// client's or the target's. All relays run as processes of their own.
//
// The output is a table, the raw figures as JSON, and for every figure that is
// owed (see figures.go) whether it is met.
package main
