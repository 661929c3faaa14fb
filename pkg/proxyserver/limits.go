package proxyserver

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"
)

// Limits are the sizes and times of carriers. Start from NewOptions.
type Limits struct {
	// IdleCarriers are kept ready for each agent, and to each peer. One that was
	// idle for CarrierIdleTime and is above that number is closed.
	IdleCarriers    int
	CarrierIdleTime time.Duration
	// MaxCarriers bounds the carriers of one agent and of all agents of a cluster,
	// MaxPendingDials the dials that they have not answered.
	MaxCarriers, MaxPendingDials int
	// DialTimeout bounds a dial from end to end; a client may ask for less.
	DialTimeout time.Duration
	// HandshakeTimeout is for a TLS handshake and the first words after it.
	HandshakeTimeout time.Duration
	// MaxHandshakes is how many handshakes are worked on at a time.
	MaxHandshakes int
	// TCPKeepAlive and TCPUserTimeout find peers that are gone without a word.
	TCPKeepAlive, TCPUserTimeout time.Duration
	// MinDrainDuration is how long the server goes on as before after SIGTERM,
	// but for not being ready: so long others may take to hear of that.
	MinDrainDuration time.Duration
}

func newLimits() Limits {
	return Limits{
		IdleCarriers:     2,
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

func (l *Limits) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&l.IdleCarriers, "idle-carriers", l.IdleCarriers, "Carriers kept ready for each agent and to each peer; more are made as they are used.")
	flags.DurationVar(&l.CarrierIdleTime, "carrier-idle-time", l.CarrierIdleTime, "Close carriers above --idle-carriers that were idle for this long.")
	flags.IntVar(&l.MaxCarriers, "max-carriers", l.MaxCarriers, "Most carriers of the agents of one cluster, and so most connections; further dials are refused.")
	flags.IntVar(&l.MaxPendingDials, "max-pending-dials", l.MaxPendingDials, "Most dials that the agents of one cluster have not answered; further ones are refused.")
	flags.DurationVar(&l.DialTimeout, "dial-timeout", l.DialTimeout, "How long a dial may take from end to end.")
	flags.DurationVar(&l.HandshakeTimeout, "handshake-timeout", l.HandshakeTimeout, "How long a TLS handshake may take.")
	flags.IntVar(&l.MaxHandshakes, "max-handshakes", l.MaxHandshakes, "Most TLS handshakes worked on at a time, on each port; the default is two for each processor.")
	flags.DurationVar(&l.TCPKeepAlive, "tcp-keepalive", l.TCPKeepAlive, "Probe a connection that has been silent for this long.")
	flags.DurationVar(&l.TCPUserTimeout, "tcp-user-timeout", l.TCPUserTimeout, "Give a connection up when sent bytes stay unacknowledged for this long.")
	flags.DurationVar(&l.MinDrainDuration, "min-drain-duration", l.MinDrainDuration, "How long new dials are still served after SIGTERM, while clients and agents learn that they should go elsewhere; agents that have no other server make it up to a minute more. --graceful-shutdown-timeout counts from its end, and 0 there skips it.")
}

func (l *Limits) validate() error {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--idle-carriers", l.IdleCarriers}, {"--max-carriers", l.MaxCarriers},
		{"--max-pending-dials", l.MaxPendingDials}, {"--max-handshakes", l.MaxHandshakes},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s must be at least 1, not %d", n.flag, n.value)
		}
	}
	if l.MaxCarriers < l.IdleCarriers {
		return fmt.Errorf("--max-carriers must be at least --idle-carriers, %d, not %d", l.IdleCarriers, l.MaxCarriers)
	}
	return atLeast([]bound{
		{"--carrier-idle-time", l.CarrierIdleTime, time.Second},
		{"--dial-timeout", l.DialTimeout, time.Millisecond},
		{"--handshake-timeout", l.HandshakeTimeout, time.Millisecond},
		{"--tcp-keepalive", l.TCPKeepAlive, time.Second},
		{"--tcp-user-timeout", l.TCPUserTimeout, time.Second},
		{"--min-drain-duration", l.MinDrainDuration, 0},
	})
}

// bound is the least that a flag may be.
type bound struct {
	flag         string
	value, least time.Duration
}

func atLeast(flags []bound) error {
	for _, f := range flags {
		if f.value < f.least {
			return fmt.Errorf("%s must be at least %s, not %s", f.flag, f.least, f.value)
		}
	}
	return nil
}
