package main

import (
	"fmt"
	"time"
)

// link is what is between the agent and the hub. The zero one is loopback.
type link struct {
	// roundTrip is added by a process that holds every byte back, on a link of
	// 1 Gbit/s (startDelay).
	roundTrip time.Duration
	// shaped is a pair of virtual network cards that the kernel lets 1 Gbit/s
	// through, to a network namespace in which the agent and the target run.
	shaped bool
}

func (l link) String() string {
	switch {
	case l.shaped:
		return " at 1 Gbit/s"
	case l.roundTrip > 0:
		return fmt.Sprintf(" at %s", l.roundTrip)
	}
	return ""
}

// rows are all measurements, in the order in which they are made.
func rows() []row {
	systems := []string{konnectivitySystem, ourDialer}
	relaying := []string{bareRelay, konnectivitySystem, stockClient, baseStockClient, ourDialer, baseDialer}
	all := []row{
		{name: "write", run: throughput(modeSink, bulk)},
		{name: "read", run: throughput(modeSource, bulk)},
		{name: "dial + 1 byte", run: dials},
		{name: "256-byte exchange", run: exchanges},
		{name: "64 workers", run: workers},
		{name: "beside stalled readers", run: besideStalled(modeFlood), fresh: true},
		{name: "beside stalled targets", run: besideStalled(modeStall), fresh: true},
		{name: "stalled reader", run: stalledMemory(modeFlood), fresh: true, once: true, of: relaying},
		{name: "stalled target", run: stalledMemory(modeStall), fresh: true, once: true, of: relaying},
		{name: "idle agent", run: idleAgents, fresh: true, once: true, of: systems},
	}
	for _, l := range []link{{shaped: true}, {roundTrip: 20 * time.Millisecond}, {roundTrip: 80 * time.Millisecond}} {
		all = append(all,
			row{name: "write" + l.String(), link: l, run: throughput(modeSink, linkBulk)},
			row{name: "read" + l.String(), link: l, run: throughput(modeSource, linkBulk)})
	}
	return all
}
