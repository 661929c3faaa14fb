// Command bench measures the data plane beside what it is compared with, in one
// run on one machine: direct TCP, the bare relay (two processes that do nothing
// but copy between TLS connections; nothing that ends TLS on two hops can be
// much cheaper), stock konnectivity built from its module, and ours with
// konnectivity's client and with our own.
//
// Every figure is the median of interleaved rounds, because these machines are
// noisy and only ratios taken side by side mean something. CPU is what the
// relaying processes used (user and system, from the operating system), not the
// client's or the target's. Memory is what the operating system says that they
// hold after they have collected their garbage. All relays run as processes of
// their own.
//
// It always ends: a subject that does not get through a row in 45 s loses its
// relays, is noted so, and is left out of the row's other rounds.
//
// Rows over a distance have a process between the agent and the hub that holds
// every byte back, on a link of 1 Gbit/s (delay.go); "direct" is TLS over that
// way there. In rows at 1 Gbit/s the kernel shapes a pair of network cards, and
// the agent and the target are in a network namespace behind it (shape.go),
// which needs root on Linux and the token bucket filter.
//
// With -base, server and agent of an earlier commit are built of its own files and
// go.mod and take the place of konnectivity and the bare relay. Both have today's
// clients, so that a ratio is about the relaying processes alone, and is the median of
// the ratios of the rounds. A relay that became slower shows in the CPU time first,
// which other load on the machine changes less than throughput.
//
// The output is a table in Markdown, each row as soon as it is measured, and for
// each target figure (figures.go) whether it is met. With -out the output goes to
// a file as well, with the raw figures as JSON beside it.
package main
