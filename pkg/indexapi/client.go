package indexapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// clientConnections is how many HTTP/2 connections a Client has. A Service leads each of them to a replica.
	clientConnections = 4
	dialTimeout       = 2 * time.Second
	idleTimeout       = 2 * time.Minute
	// pingAfter is how long nothing may come on a connection before it is tried, and pingTimeout how long that
	// may take.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
	// maxAnswer bounds the answer to a search or a count, and maxRefusal what is read of a refusal.
	maxAnswer, maxRefusal = 32 << 20, 4 << 10
)

// Error is a refusal of the index. Its words are for users if the code is that of a client's error.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the fleet index answers %d: %s", e.Code, e.Message)
}

// Client asks the fleet index. It is safe for concurrent use.
type Client struct {
	address string
	source  *pki.Reloader
	next    atomic.Uint32
	pool    [clientConnections]*http.Transport
}

// NewClient returns a Client of the index at a host and port. It does no I/O. The source has the certificate of the
// proxy API and the hub's CA.
func NewClient(address string, source *pki.Reloader) *Client {
	c := &Client{address: address, source: source}
	for i := range c.pool {
		t := &http.Transport{
			Protocols: new(http.Protocols), DialTLSContext: c.dial, IdleConnTimeout: idleTimeout, DisableCompression: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		}
		t.Protocols.SetHTTP2(true)
		c.pool[i] = t
	}
	return c
}

// Close closes the connections that are idle.
func (c *Client) Close() {
	for _, t := range c.pool {
		t.CloseIdleConnections()
	}
}

// dial connects to the index, which must have its name and its role.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// A dial may outlive the request that it was begun for.
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config := c.source.ClientConfig(identity.FleetIndexHost)
	config.NextProtos = []string{"h2"}
	config.VerifyConnection = func(state tls.ConnectionState) error { return c.check(&state) }
	return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
}

func (c *Client) check(state *tls.ConnectionState) error {
	return c.source.CheckRole(state, identity.RoleFleetIndex)
}

// Tables asks for the tables of clusters. visit is called for each cluster in the order of the request, and take
// with the number of bytes as they come. An error of either ends the answer and is returned.
func (c *Client) Tables(ctx context.Context, request *TablesRequest, take func(n int) error, visit func(head *Head, table []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an answer that is not wanted is not read to its end
	response, err := c.post(ctx, TablesPath, request.Clusters, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reader := NewTablesReader(&takenReader{response.Body, take})
	for _, asked := range request.Clusters {
		head, table, err := reader.Next()
		if err == nil && head.Cluster != asked.Name {
			err = fmt.Errorf("it answers for cluster %q in the place of %q", head.Cluster, asked.Name)
		}
		if err != nil {
			return fmt.Errorf("reading an answer of the fleet index: %w", noEOF(err))
		}
		if err := visit(head, table); err != nil {
			return err
		}
	}
	if head, _, err := reader.Next(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("it also answers for cluster %q", head.Cluster)
		}
		return fmt.Errorf("reading an answer of the fleet index: %w", err)
	}
	return nil
}

// Search finds rows.
func (c *Client) Search(ctx context.Context, request *SearchRequest) (*SearchAnswer, error) {
	answer := &SearchAnswer{}
	return answer, c.ask(ctx, SearchPath, request.Clusters, request, answer)
}

// Count counts rows.
func (c *Client) Count(ctx context.Context, request *CountRequest) (*CountAnswer, error) {
	answer := &CountAnswer{}
	return answer, c.ask(ctx, CountPath, request.Clusters, request, answer)
}

// ask reads an answer in one piece.
func (c *Client) ask(ctx context.Context, path string, clusters []Cluster, request, answer any) error {
	response, err := c.post(ctx, path, clusters, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading an answer of the fleet index: %w", err)
	case len(body) > maxAnswer:
		return fmt.Errorf("the fleet index answers with more than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("parsing an answer of the fleet index: %w", err)
	}
	return nil
}

// post sends a request about clusters and returns an answer that is no refusal. The caller closes its body.
func (c *Client) post(ctx context.Context, path string, clusters []Cluster, request any) (*http.Response, error) {
	if len(clusters) > MaxClusters {
		return nil, &Error{http.StatusBadRequest, fmt.Sprintf("the request is about %d clusters, and may be about %d", len(clusters), MaxClusters)}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxRequest {
		return nil, &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has %d bytes, and may have %d", len(body), MaxRequest)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := c.pool[c.next.Add(1)%clientConnections]
	response, err := transport.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("asking the fleet index: %w", pki.Explain(err))
	}
	// The connection may be older than what is believed now.
	if err := c.check(response.TLS); err != nil {
		response.Body.Close()
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("asking the fleet index: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// refusal reads a refusal: a Status, or text.
func refusal(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the code says enough
	var status metav1.Status
	message := strings.TrimSpace(strings.ToValidUTF8(string(body), "?"))
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		message = status.Message
	}
	if message == "" {
		message = http.StatusText(response.StatusCode)
	}
	return &Error{response.StatusCode, message}
}

// takenReader counts what is read.
type takenReader struct {
	io.Reader
	take func(n int) error
}

func (r *takenReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if taken := r.take(n); taken != nil {
		return 0, taken
	}
	return n, err
}
