package hostile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testFloods sends the proxy API bad tokens. A user whose token was good before must not
// notice. The proxy API's own tests have requests that are taken back at once (TestRapidReset)
// and connections on which nothing comes to its end (TestSlowClients).
func (s *Suite) testFloods(t *testing.T) {
	d := s.endpoints(t, s.attacker())[0] // the others end there too
	token := s.hubUser(t, "hostile-flooded", mayReach(s.attacker(), "get"))
	user := d.client(t)
	if code, err := d.get(t.Context(), user, token); err != nil || code != http.StatusOK {
		t.Fatalf("before the floods: %d, %v, want 200", code, err)
	}
	t.Run("BadTokens", func(t *testing.T) { s.testBadTokens(t, d, token) })
}

// client is for HTTP/2, with connections of its own.
func (d endpoint) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: d.config.Clone(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

// get asks a cluster for its version.
func (d endpoint) get(ctx context.Context, client *http.Client, token string) (int, error) {
	return d.ask(ctx, client, token, http.MethodGet, "/version", "")
}

// review asks a cluster who the token's user is. That is a POST, so nothing on the way
// may send it twice.
func (d endpoint) review(ctx context.Context, client *http.Client, token string) (int, error) {
	code, err := d.ask(ctx, client, token, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	if code == http.StatusCreated {
		code = http.StatusOK
	}
	return code, err
}

func (d endpoint) ask(ctx context.Context, client *http.Client, token, method, path, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+d.address+d.prefix+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// beside sends requests while an attack runs, and wants an answer each time: of a user
// of the hub on a connection that was open before and on a new one each time, and of a
// user of the attacker's cluster, who writes and whom the hub does not know.
//
// The user's slowest request comes while an attack makes connections of its own: the bad tokens come with 400 handshakes at once, for which attackers,
// user, proxy API and clusters share the cores. Of one that took 2.9 s on two of
// them, 1.1 s were for the user's own connection, 1.4 s until the proxy API had read the
// request, and 0.3 s in the cluster and on the way there; authentication and
// authorization took less than a millisecond each. The user's TokenReviews took 18 ms at
// most, and none of all 287 more than 40 ms at the hub.
func (s *Suite) beside(t *testing.T, d endpoint, token string, attack func()) {
	t.Helper()
	old, anew, writer := d.client(t), d.client(t), d.client(t)
	if code, err := d.get(t.Context(), old, token); err != nil || code != http.StatusOK {
		t.Fatalf("before the attack: %d, %v, want 200", code, err)
	}
	local, err := s.managed[s.attacker()].CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := d.review(t.Context(), writer, local.Status.Token); err != nil || code != http.StatusOK {
		t.Fatalf("before the attack, of a user of the cluster: %d, %v, want 200", code, err)
	}
	ended := make(chan struct{})
	var users sync.WaitGroup
	users.Go(func() {
		repeat(t, "an old connection", func() (int, error) { return d.get(t.Context(), old, token) }, ended)
	})
	users.Go(func() {
		repeat(t, "a new one each time", func() (int, error) {
			defer anew.CloseIdleConnections()
			return d.get(t.Context(), anew, token)
		}, ended)
	})
	users.Go(func() {
		repeat(t, "an old connection, writing", func() (int, error) { return d.review(t.Context(), writer, local.Status.Token) }, ended)
	})
	attack()
	close(ended)
	users.Wait()
}

// repeat sends a user's requests one after the other until an attack has ended, the
// last one after that.
func repeat(t *testing.T, connection string, request func() (int, error), ended <-chan struct{}) {
	var took []time.Duration
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		began := time.Now()
		if code, err := request(); err != nil || code != http.StatusOK {
			t.Errorf("a user whose token was good before is answered %d, %v, on %s", code, err, connection)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d requests of the user on %s: half took %s at most, 99 %% %s, the slowest %s", len(took), connection, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

func (s *Suite) testBadTokens(t *testing.T, d endpoint, token string) {
	const tokens, workers, connections = 10_000, 400, 4
	next := make(chan int, tokens)
	for i := range tokens {
		next <- i
	}
	close(next)
	var handshakes atomic.Int32
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{TLSHandshakeStart: func() { handshakes.Add(1) }})
	var mu sync.Mutex
	codes := map[int]int{}
	s.beside(t, d, token, func() {
		var clients sync.WaitGroup
		for range connections {
			client := d.client(t)
			for range workers / connections {
				clients.Go(func() {
					for i := range next {
						code, err := d.get(traced, client, fmt.Sprint("hostile-", i))
						if err != nil {
							t.Errorf("a bad token: %v", err)
						}
						mu.Lock()
						codes[code]++
						mu.Unlock()
					}
				})
			}
		}
		clients.Wait()
	})
	t.Logf("answers to bad tokens, with %d handshakes: %v", handshakes.Load(), codes)
	for code := range codes {
		if !slices.Contains([]int{http.StatusUnauthorized, http.StatusTooManyRequests}, code) {
			t.Errorf("%d bad tokens are answered %d, want 401 or 429", codes[code], code)
		}
	}
	if codes[http.StatusTooManyRequests] < tokens/2 {
		t.Errorf("only %d of %d were refused unseen", codes[http.StatusTooManyRequests], tokens)
	}
	made, err := s.hub.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "hostile-flooded", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := d.client(t)
	eventually(t, "a new token from the same address to be let in", func() error {
		code, err := d.get(t.Context(), client, made.Status.Token)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("answered %d", code)
		}
		return err
	})
}

// requestsInFlight begins the metric of requests that are no streams: the hub's garbage
// collector has streams open at the proxy API, and opens them again when it likes.
const requestsInFlight = `cluster_proxy_api_requests_in_flight{kind="request"`
