package proxyserver

import (
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
)

// Limits are the sizes and times of carriers. Start from NewOptions.
type Limits struct {
	// IdleCarriers are kept ready for each agent, its control session among them, and one
	// more to each peer. One that was idle for
	// CarrierIdleTime and is above that number is closed.
	IdleCarriers    int
	CarrierIdleTime time.Duration
	// MaxCarriers bounds the carriers of one agent and of all agents of a cluster,
	// MaxPendingDials the dials that they have not answered.
	MaxCarriers, MaxPendingDials int
	// DialTimeout bounds a dial from end to end; a client may ask for less.
	DialTimeout time.Duration
	// HandshakeTimeout bounds a TLS handshake, and HELLO after it.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the TLS handshakes that are worked on at a time.
	MaxHandshakes int
	// TCPKeepAlive and TCPUserTimeout are those of dial.TCP.
	TCPKeepAlive, TCPUserTimeout time.Duration
	// MinDrainDuration is how long the server goes on serving new dials after
	// SIGTERM, and after the last connection of a client since then, while it is not
	// ready, so that clients and agents notice. Three times that is the most.
	MinDrainDuration time.Duration
}

func newLimits() Limits {
	return Limits{
		IdleCarriers:     1,
		CarrierIdleTime:  time.Minute,
		MaxCarriers:      4096,
		MaxPendingDials:  1024,
		DialTimeout:      15 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		MaxHandshakes:    2 * runtime.GOMAXPROCS(0),
		TCPKeepAlive:     30 * time.Second,
		TCPUserTimeout:   30 * time.Second,
		MinDrainDuration: 5 * time.Second,
	}
}

func (l *Limits) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.IdleCarriers, "idle-carriers", l.IdleCarriers, "carriers kept ready for each agent, its control session among them, and one more to each peer; more are dialed as they are used")
	fs.DurationVar(&l.CarrierIdleTime, "carrier-idle-time", l.CarrierIdleTime, "close carriers above --idle-carriers that were idle for this long")
	fs.IntVar(&l.MaxCarriers, "max-carriers", l.MaxCarriers, "most carriers of the agents of one cluster, and so most connections; further dials are refused")
	fs.IntVar(&l.MaxPendingDials, "max-pending-dials", l.MaxPendingDials, "most dials that the agents of one cluster have not answered; further ones are refused")
	fs.DurationVar(&l.DialTimeout, "dial-timeout", l.DialTimeout, "how long a dial may take from end to end")
	fs.DurationVar(&l.HandshakeTimeout, "handshake-timeout", l.HandshakeTimeout, "how long a TLS handshake may take")
	fs.IntVar(&l.MaxHandshakes, "max-handshakes", l.MaxHandshakes, "most TLS handshakes worked on at a time, on each port; the default is two for each processor")
	fs.Lookup("max-handshakes").DefValue = "0" // help is the same on each machine
	fs.DurationVar(&l.TCPKeepAlive, "tcp-keepalive", l.TCPKeepAlive, "probe a connection that has been silent for this long")
	fs.DurationVar(&l.TCPUserTimeout, "tcp-user-timeout", l.TCPUserTimeout, "close a connection when sent bytes stay unacknowledged for this long")
	fs.DurationVar(&l.MinDrainDuration, "min-drain-duration", l.MinDrainDuration, "how long new dials are still served after SIGTERM and after the last connection since then, three times as long at most, while clients and agents learn that they should go elsewhere; agents that have no other server make it up to a minute more; --graceful-shutdown-timeout=0 skips it")
}

func (l *Limits) validate(errs *flags.Errors) {
	flags.AtLeast(errs, []flags.Check[int]{
		{Flag: "idle-carriers", Value: l.IdleCarriers, Least: 1}, {Flag: "max-carriers", Value: l.MaxCarriers, Least: max(l.IdleCarriers, 1)},
		{Flag: "max-pending-dials", Value: l.MaxPendingDials, Least: 1}, {Flag: "max-handshakes", Value: l.MaxHandshakes, Least: 1},
	}...)
	flags.AtLeast(errs, []flags.Check[time.Duration]{
		{Flag: "carrier-idle-time", Value: l.CarrierIdleTime, Least: time.Second},
		{Flag: "dial-timeout", Value: l.DialTimeout, Least: time.Millisecond},
		{Flag: "handshake-timeout", Value: l.HandshakeTimeout, Least: time.Millisecond},
		{Flag: "tcp-keepalive", Value: l.TCPKeepAlive, Least: time.Second},
		{Flag: "tcp-user-timeout", Value: l.TCPUserTimeout, Least: time.Second},
		{Flag: "min-drain-duration", Value: l.MinDrainDuration},
	}...)
}
