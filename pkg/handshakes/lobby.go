package handshakes

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxUnverified is how many connections of known sources, and how many of
	// unknown ones, may be without a verified certificate at a time;
	// maxUnverifiedSource of them may come from one source. An agents' balancer may
	// make one source of a whole fleet. One that waits costs about 10 KiB.
	maxUnverified       = 8192
	maxUnverifiedSource = maxUnverified / 2
	// maxKnown is how many sources of verified peers are remembered, and maxKnownOfPeer how many
	// of one peer: a certificate that is used from everywhere pushes out no other's sources.
	maxKnown       = 16384
	maxKnownOfPeer = 64
	// expectTime is how long a connection that an agent was asked for is expected,
	// and maxExpected how many of one source are.
	expectTime  = 10 * time.Second
	maxExpected = 64
)

// SourceOf is where a connection comes from, as far as one peer can choose it: an
// IPv4 address, or the /64 of an IPv6 address.
func SourceOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	source, _ := ip.Prefix(bits)
	return source
}

// lobby holds the connections whose handshake is not complete, and bounds them.
// When it is full, the oldest makes room: of the newcomer's source if that has
// most of the places, or else of all known or unknown sources.
type lobby struct {
	dropped func(reason string)

	mu       sync.Mutex
	bySource map[netip.Prefix]*list.List // of *visitor, oldest first
	byClass  [classes]*list.List
	verified map[netip.Prefix]*acquaintance
	recent   *list.List            // of *acquaintance, the one seen last at the front
	ofPeer   map[string]*list.List // likewise, those of one peer
	expected map[netip.Prefix]expectation
	closed   bool
}

type expectation struct {
	n     int
	until time.Time
}

// acquaintance is a source from which a handshake succeeded.
type acquaintance struct {
	source netip.Prefix
	// peer is the common name of the certificate; empty if the peer has none.
	peer             string
	inRecent, inPeer *list.Element
}

// visitor is a connection in the lobby.
type visitor struct {
	*turn
	conn              net.Conn
	entered           class
	inSource, inClass *list.Element
}

func newLobby(dropped func(reason string)) *lobby {
	l := &lobby{dropped: dropped, bySource: map[netip.Prefix]*list.List{}, verified: map[netip.Prefix]*acquaintance{},
		recent: list.New(), ofPeer: map[string]*list.List{}, expected: map[netip.Prefix]expectation{}}
	for c := range l.byClass {
		l.byClass[c] = list.New()
	}
	return l
}

// enter adds a connection, and may end another one.
func (l *lobby) enter(conn net.Conn) *visitor {
	source := SourceOf(conn.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.classOf(source)
	same := l.bySource[source]
	if same == nil {
		same = list.New()
		l.bySource[source] = same
	}
	if same.Len() >= maxUnverifiedSource {
		l.drop(same.Front().Value.(*visitor), "source")
	} else if all := l.byClass[c]; all.Len() >= maxUnverified {
		l.drop(all.Front().Value.(*visitor), "all")
	}
	v := &visitor{turn: newTurn(source, c), conn: conn, entered: c}
	v.inSource, v.inClass = same.PushBack(v), l.byClass[c].PushBack(v)
	l.bySource[source] = same // drop may have emptied it
	if l.closed {
		l.dismiss(v)
	}
	return v
}

// classOf is the class of a new connection; mu is held.
func (l *lobby) classOf(source netip.Prefix) class {
	if e, ok := l.expected[source]; ok {
		if e.n--; e.n <= 0 || time.Now().After(e.until) {
			delete(l.expected, source)
		} else {
			l.expected[source] = e
		}
		if !time.Now().After(e.until) {
			return awaited
		}
	}
	if _, ok := l.verified[source]; ok {
		return known
	}
	return unknown
}

// drop ends a connection; mu is held.
func (l *lobby) drop(v *visitor, reason string) {
	l.dismiss(v)
	l.dropped(reason)
}

func (l *lobby) dismiss(v *visitor) {
	l.remove(v)
	close(v.gone)
	_ = v.conn.Close()
}

// close ends all that are in the lobby, and those that enter later.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, all := range l.byClass {
		for all.Len() > 0 {
			l.dismiss(all.Front().Value.(*visitor))
		}
	}
}

// leave takes a connection out, whose handshake succeeded or not. peer is the common name of the
// certificate, if there is one.
func (l *lobby) leave(v *visitor, peer string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(v)
	if err != nil {
		return
	}
	if a, ok := l.verified[v.source]; ok {
		l.recent.MoveToFront(a.inRecent)
		if a.inPeer != nil {
			l.ofPeer[a.peer].MoveToFront(a.inPeer)
		}
		return
	}
	a := &acquaintance{source: v.source, peer: peer}
	l.verified[v.source], a.inRecent = a, l.recent.PushFront(a)
	if peer != "" {
		all := l.ofPeer[peer]
		if all == nil {
			all = list.New()
			l.ofPeer[peer] = all
		}
		if a.inPeer = all.PushFront(a); all.Len() > maxKnownOfPeer {
			l.forget(all.Back().Value.(*acquaintance))
		}
	}
	if l.recent.Len() > maxKnown {
		l.forget(l.recent.Back().Value.(*acquaintance))
	}
}

// forget makes a source unknown; mu is held.
func (l *lobby) forget(a *acquaintance) {
	delete(l.verified, a.source)
	l.recent.Remove(a.inRecent)
	if a.inPeer == nil {
		return
	}
	all := l.ofPeer[a.peer]
	if all.Remove(a.inPeer); all.Len() == 0 {
		delete(l.ofPeer, a.peer)
	}
}

// remove does nothing if v is out already; mu is held.
func (l *lobby) remove(v *visitor) {
	if v.inSource == nil {
		return
	}
	same := l.bySource[v.source]
	same.Remove(v.inSource)
	if same.Len() == 0 {
		delete(l.bySource, v.source)
	}
	l.byClass[v.entered].Remove(v.inClass)
	v.inSource, v.inClass = nil, nil
}

// expect says that users wait for n connections from a source.
func (l *lobby) expect(source netip.Prefix, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.expected) >= maxKnown {
		clear(l.expected)
	}
	e := l.expected[source]
	if now.After(e.until) {
		e.n = 0
	}
	l.expected[source] = expectation{min(e.n+n, maxExpected), now.Add(expectTime)}
}
