package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

const (
	// greetEvery is how often each peer is greeted, and names are resolved.
	greetEvery = 3 * time.Second
	// greetTimeout is how long a peer may take to answer a greeting, and askTimeout how
	// long all may take to answer what they know of a version.
	greetTimeout = time.Second
	askTimeout   = 1500 * time.Millisecond
	// surelySelf is how often in a row an address must lead back here to be greeted no more
	// than others. Behind a load balancer it may lead elsewhere the next time.
	surelySelf = 8
	// lostPeer is how long a peer that does not answer any more counts as one that may
	// know something: as long as versions can be resumed.
	lostPeer = 5 * time.Minute
	// maxPeers bounds the addresses that are greeted.
	maxPeers = 100
	// maxAsking is how many versions peers are asked for at a time.
	maxAsking = 64
	// tellEvery is how often a process that drains tells peers what is new, and tellTimeout
	// how long that may take.
	tellEvery   = time.Second
	tellTimeout = 2 * time.Second
)

// Paths of the port for peers.
const (
	GreetPath     = "/peers"
	PositionsPath = "/positions"
	// ownerParameter is whose position a peer is asked for.
	ownerParameter = "owner"
	// PeerHeader has the ID of the peer that a request about positions is for.
	PeerHeader = "Cluster-Proxy-Peer"
)

// Peers are the other replicas of the proxy API. They know positions of watches that this
// one does not, and get those of this one before it ends.
//
// They are found by name, and by each other: a peer that is greeted learns the address of
// the one that greets, and answers with all addresses that it knows. So replicas find each
// other at once, while DNS may be behind by its caches, and behind a load balancer too.
type Peers struct {
	// ID tells this process from its peers.
	ID        string
	port      int
	names     []string
	Positions *position.Store
	// Sessions are those of this replica.
	Sessions *session.Registry
	Client   *http.Client
	Lookup   func(ctx context.Context, host string) ([]string, error)
	Metrics  *metrics.Metrics
	asking   chan struct{}
	// greeted is closed when all peers were greeted once.
	greeted chan struct{}

	Mu      sync.Mutex
	leaving bool
	Known   map[string]*peer // by address
	// told is how much of the positions peers have got, by their IDs.
	told map[string]uint64
}

// peer is what is known of an address.
type peer struct {
	// ID is that of the process that answered there last; empty if none has.
	ID string
	// Lost is when it began not to answer; zero while it does.
	Lost time.Time
	// own says that the process itself said that it listens here. Other addresses may be
	// those of a load balancer.
	own bool
	// selves counts how often in a row it was this process.
	selves int
}

// New returns the other replicas, which are found by the names of Services and by greetings.
func New(names []string, port int, positions *position.Store, transport http.RoundTripper, m *metrics.Metrics) *Peers {
	return &Peers{
		ID: uuid.NewString(), port: port, names: names, Positions: positions, Client: &http.Client{Transport: transport, CheckRedirect: noRedirect}, Metrics: m,
		Lookup: net.DefaultResolver.LookupHost, asking: make(chan struct{}, maxAsking), greeted: make(chan struct{}),
		Known: map[string]*peer{}, told: map[string]uint64{},
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// greeting is what replicas say to each other, and answer.
type greeting struct {
	ID string `json:"id"`
	// Port is where the one that greets listens.
	Port int `json:"port,omitempty"`
	// Leaving says that it ends, and that its peers know all that it does.
	Leaving bool `json:"leaving,omitempty"`
	// Addresses are those of peers, in an answer.
	Addresses []string `json:"addresses,omitempty"`
}

// Run greets peers until ctx is done.
func (p *Peers) Run(ctx context.Context) error {
	for first := true; ; first = false {
		p.resolve(ctx)
		// A connection is used for one round, so that certificates are looked at again.
		p.Client.CloseIdleConnections()
		p.GreetAll(ctx, false)
		if first {
			close(p.greeted)
		}
		select {
		case <-ctx.Done():
			p.Client.CloseIdleConnections()
			return nil
		case <-time.After(greetEvery):
		}
	}
}

// resolve adds the addresses that the names have. A name that cannot be resolved changes
// nothing: peers that are known are greeted until they are lost.
func (p *Peers) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	for _, name := range p.names {
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			continue // Validate has looked
		}
		addresses, err := p.Lookup(ctx, host)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Resolving the name of peers", "name", host, "err", err.Error())
		}
		for _, ip := range addresses {
			p.Add(net.JoinHostPort(ip, port))
		}
	}
}

// Add adds an address, which is greeted in the next round.
func (p *Peers) Add(address string) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.learn(address)
}

// learn adds an address that is new, if there is room. The caller holds mu.
func (p *Peers) learn(address string) {
	if p.Known[address] == nil && len(p.Known) < maxPeers {
		p.Known[address] = &peer{Lost: time.Now()}
	}
}

// GreetAll greets each address that is known, and those that the answers have.
func (p *Peers) GreetAll(ctx context.Context, leaving bool) {
	done := map[string]bool{}
	for range 2 {
		var round sync.WaitGroup
		p.Mu.Lock()
		for address := range p.Known {
			if !done[address] {
				done[address] = true
				round.Go(func() { p.greet(ctx, address, leaving) })
			}
		}
		p.Mu.Unlock()
		round.Wait()
	}
	live, _ := p.Live()
	p.Metrics.Peers.Set(float64(len(live)))
}

// greet greets one address. One that leads back here is greeted again, as it may lead
// elsewhere then.
func (p *Peers) greet(ctx context.Context, address string, leaving bool) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	for range 3 {
		answer, err := p.say(ctx, address, greeting{ID: p.ID, Port: p.port, Leaving: leaving})
		if again := p.heard(address, answer, err); !again {
			return
		}
	}
}

// heard notes how an address has answered. It reports whether to greet it again now.
func (p *Peers) heard(address string, answer greeting, err error) (again bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	one := p.Known[address]
	switch {
	case one == nil:
	case err != nil || answer.Leaving:
		if one.Lost.IsZero() {
			one.Lost = time.Now()
		}
		if answer.Leaving {
			one.ID = ""
		}
		if one.ID == "" || time.Since(one.Lost) > lostPeer {
			delete(p.Known, address) // it comes back with its name
		}
	case answer.ID == p.ID:
		one.ID, one.Lost = "", time.Now()
		one.selves++
		return one.selves < surelySelf
	default:
		one.ID, one.Lost, one.selves = answer.ID, time.Time{}, 0
		for _, other := range answer.Addresses {
			if isAddress(other) {
				p.learn(other)
			}
		}
	}
	return false
}

func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, wrong := strconv.Atoi(port)
	return err == nil && wrong == nil && n > 0 && n < 1<<16 && net.ParseIP(host) != nil
}

// Live returns an address of each peer that answers, by their IDs, and whether these are
// all peers that may know something.
func (p *Peers) Live() (addresses map[string]string, all bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	addresses, all = map[string]string{}, true
	for address, one := range p.Known {
		if one.ID != "" && one.Lost.IsZero() && (one.own || addresses[one.ID] == "") {
			addresses[one.ID] = address
		}
	}
	for _, one := range p.Known {
		if one.ID != "" && addresses[one.ID] == "" {
			all = false
		}
	}
	return addresses, all
}

// say greets.
func (p *Peers) say(ctx context.Context, address string, g greeting) (answer greeting, err error) {
	body, err := json.Marshal(g)
	if err != nil {
		return greeting{}, err
	}
	raw, err := p.send(ctx, http.MethodPost, address, "", GreetPath, body)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && answer.ID == "" {
		err = errors.New("the answer has no ID")
	}
	return answer, err
}

// send sends a request to the peer with an ID, or to any for a greeting, and returns the
// answer, which is empty for 404.
func (p *Peers) send(ctx context.Context, method, address, id, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set(PeerHeader, id)
	response, err := p.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, position.MaxMessage+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode >= http.StatusMultipleChoices:
		return nil, fmt.Errorf("peer %s answered %s", address, response.Status)
	case len(answer) > position.MaxMessage:
		return nil, fmt.Errorf("peer %s answered more than %d bytes", address, position.MaxMessage)
	}
	return answer, nil
}

// Ask is Ask of position.Store.
func (p *Peers) Ask(ctx context.Context, v version.Version, owner string, take func(answer []byte) (enough bool)) (all bool) {
	all = true
	result := metrics.PositionUnknown
	defer func() { p.Metrics.Asked.WithLabelValues(result).Inc() }()
	lost, err := p.askAll(ctx, http.MethodGet, PositionsPath+"/"+v.String()+"?"+url.Values{ownerParameter: {owner}}.Encode(), func(_ PeerAddress, answer []byte, err error) (enough bool) {
		if err != nil {
			all = false
			return false
		}
		if enough = take(answer); enough {
			result = metrics.PositionFound
		}
		return enough
	})
	return all && !lost && err == nil
}

// PeerAddress is where a peer has answered.
type PeerAddress struct{ id, address string }

// askAll sends a request to all peers, for askTimeout at most, and has take called with each
// answer, until it has enough. lost says that there may be a peer that does not answer. The
// error says why no peer was asked.
func (p *Peers) askAll(ctx context.Context, method, path string, take func(from PeerAddress, answer []byte, err error) (enough bool)) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return false, errors.New("too many questions to the other replicas are under way")
	}
	select {
	case <-p.greeted:
	case <-ctx.Done():
		return false, errors.New("the other replicas of the proxy API are not known yet")
	}
	addresses, all := p.Live()
	type answered struct {
		from    PeerAddress
		message []byte
		err     error
	}
	answers := make(chan answered, len(addresses))
	for id, address := range addresses {
		go func() {
			message, err := p.send(ctx, method, address, id, path, nil)
			answers <- answered{PeerAddress{id, address}, message, err}
		}()
	}
	for range addresses {
		if a := <-answers; take(a.from, a.message, a.err) {
			break
		}
	}
	return !all, nil
}

// tellAll tells each peer what it has not been told.
func (p *Peers) tellAll(ctx context.Context) error {
	addresses, _ := p.Live()
	errs := make(chan error, len(addresses))
	for id, address := range addresses {
		go func() { errs <- p.tell(ctx, id, address) }()
	}
	var all []error
	for range addresses {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (p *Peers) tell(ctx context.Context, id, address string) error {
	p.Mu.Lock()
	since := p.told[id]
	p.Mu.Unlock()
	messages, now := p.Positions.Export(since)
	for message := range messages {
		if _, err := p.send(ctx, http.MethodPost, address, id, PositionsPath, message); err != nil {
			return fmt.Errorf("handing positions of watches over to peer %s: %w", address, err)
		}
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.told[id] = now
	return nil
}

// Ready returns an error until all peers were greeted once.
func (p *Peers) Ready() error {
	select {
	case <-p.greeted:
		return nil
	default:
		return errors.New("the other replicas have not been greeted yet")
	}
}

// Drain tells peers what is new until done is closed, once more after that, and says
// goodbye. Positions that no peer has got are lost with this process.
func (p *Peers) Drain(ctx context.Context, done <-chan struct{}) {
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			return
		case <-done:
			ended = true
			p.GreetAll(ctx, false) // one that missed the last greeting is told too
		case <-time.After(tellEvery):
		}
		limited, cancel := context.WithTimeout(ctx, tellTimeout)
		err := p.tellAll(limited)
		cancel()
		if err != nil && ended {
			klog.FromContext(ctx).Error(err, "Watches of fleet views that this process served may have to begin anew")
		}
	}
	p.Mu.Lock()
	p.leaving = true
	p.Mu.Unlock()
	p.GreetAll(ctx, true)
}

// forThis refuses requests for another peer, whose address this process has got.
func (p *Peers) forThis(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(PeerHeader) != p.ID {
			http.Error(w, "another replica is here", http.StatusMisdirectedRequest)
			return
		}
		handler(w, r)
	}
}
