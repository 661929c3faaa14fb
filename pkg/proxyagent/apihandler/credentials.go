package apihandler

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"

	"k8s.io/utils/lru"
)

const (
	// maxAccepted is how many credentials have connections that are found again. Each
	// takes 30 KiB, and 15 more while a connection is open.
	maxAccepted = 512
	// maxUnknown is the same for those about which the kube-apiserver has not said
	// anything yet, and for those that it refused.
	maxUnknown = 64
)

// byCredential sends requests on connections that they share with requests of the same
// credential only. A kube-apiserver ends an HTTP/2 connection on which it refuses a
// token, and with it requests that it has not read yet; those of other users must not be
// among them (UnauthenticatedHTTP2DOSMitigation in k8s.io/apiserver's WithAuthentication).
type byCredential struct {
	// connect returns what makes connections of its own.
	connect func() (http.RoundTripper, error)

	mu sync.Mutex
	// A sender of bad tokens takes the places of unknown credentials only.
	accepted, unknown *lru.Cache // http.RoundTripper by the credential's hash
}

func newByCredential(connect func() (http.RoundTripper, error)) *byCredential {
	return &byCredential{connect: connect, accepted: lru.New(maxAccepted), unknown: lru.New(maxUnknown)}
}

// RoundTrip is part of http.RoundTripper. A credential that is no longer kept has new
// connections for its next request; those that it had serve what is on them, and end
// when they are idle.
func (b *byCredential) RoundTrip(r *http.Request) (*http.Response, error) {
	credential := sha256.Sum256([]byte(strings.Join(r.Header.Values("Authorization"), "\n")))
	connections, err := b.find(credential)
	if err != nil {
		return nil, err
	}
	resp, err := connections.RoundTrip(r)
	if err == nil {
		b.learn(credential, connections, resp.StatusCode != http.StatusUnauthorized)
	}
	return resp, err
}

func (b *byCredential) find(credential [sha256.Size]byte) (http.RoundTripper, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kept := range []*lru.Cache{b.accepted, b.unknown} {
		if connections, ok := kept.Get(credential); ok {
			return connections.(http.RoundTripper), nil
		}
	}
	connections, err := b.connect()
	if err != nil {
		return nil, err
	}
	b.unknown.Add(credential, connections)
	return connections, nil
}

// learn keeps the connections of a credential that was accepted.
func (b *byCredential) learn(credential [sha256.Size]byte, connections http.RoundTripper, accepted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.accepted.Get(credential); known == accepted {
		return
	}
	if accepted {
		b.unknown.Remove(credential)
		b.accepted.Add(credential, connections)
		return
	}
	b.accepted.Remove(credential)
}
