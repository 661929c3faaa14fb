package suite

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Answer is what a client gets that it could tell endpoints apart by.
type Answer struct {
	Code    int
	Headers http.Header
	Body    string
}

// telling are the headers of an answer that a client acts on. Vary is not among
// them: the hub's kube-apiserver adds it to answers that it passes on.
var telling = []string{"Content-Type", "Content-Encoding", "Cache-Control", "Warning", "Etag", "Retry-After", "Location", "Allow", "Www-Authenticate"}

// varying is what differs between two answers of one kube-apiserver to the same
// request: what is made up for an object that is only tried out, versions, of which a token to
// go on with has one, and ages in Tables.
var varying = regexp.MustCompile(`("(?:uid|creationTimestamp|time|resourceVersion|continue)":|"cells":\["[^"]*",\d+,)"[^"]*"`)

// Request is sent as it is.
type Request struct {
	Name, Method, Path string
	Header             http.Header
	Body               string
	// refused says that the hub's own kube-apiserver refuses it, see proxyapi's
	// package comment.
	Refused bool
}

// Ask sends a request as it is: no client library adds to it or takes from it.
func Ask(ctx context.Context, cfg *rest.Config, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return Answer{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(ctx, r.Method, strings.TrimSuffix(cfg.Host, "/")+r.Path, strings.NewReader(r.Body))
	if err != nil {
		return Answer{}, err
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return Answer{}, err
		}
		if body, err = io.ReadAll(plain); err != nil {
			return Answer{}, err
		}
	}
	a := Answer{Code: resp.StatusCode, Headers: http.Header{}, Body: varying.ReplaceAllString(string(body), `$1"…"`)}
	for _, name := range telling {
		if values := resp.Header.Values(name); len(values) > 0 {
			a.Headers[name] = values
		}
	}
	// A redirect stays behind the endpoint that it came through.
	if endpoint, err := url.Parse(cfg.Host); err == nil && a.Headers.Get("Location") != "" {
		a.Headers.Set("Location", strings.TrimPrefix(a.Headers.Get("Location"), endpoint.Path))
	}
	// The hub's kube-apiserver says its own before the one that it passes on.
	if cached := a.Headers["Cache-Control"]; len(cached) > 1 {
		a.Headers["Cache-Control"] = cached[len(cached)-1:]
	}
	return a, nil
}

// Accept and Content are headers with a media type.
func Accept(kind string) http.Header { return http.Header{"Accept": {kind}} }

func Content(kind string) http.Header { return http.Header{"Content-Type": {kind}} }

// Status sends a GET through the proxy API and decodes the Status that comes
// back.
func Status(t *testing.T, cfg *rest.Config, path string) (*http.Response, metav1.Status) {
	t.Helper()
	resp, s, err := TryStatus(t.Context(), cfg, path)
	if err != nil {
		t.Fatal(err)
	}
	return resp, s
}

// TryStatus is Status with an error.
func TryStatus(ctx context.Context, cfg *rest.Config, path string) (*http.Response, metav1.Status, error) {
	var s metav1.Status
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, s, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		return nil, s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, s, err
	}
	if err := json.Unmarshal(body, &s); err != nil || s.Kind != "Status" {
		return nil, s, fmt.Errorf("%s answered %d with %q, want a metav1.Status", path, resp.StatusCode, body)
	}
	return resp, s, nil
}

// Get makes one request on a connection of its own, and wants 200.
func Get(ctx context.Context, cfg *rest.Config, path string) error {
	return ask(ctx, cfg, http.MethodGet, path, "", http.StatusOK)
}

func ask(ctx context.Context, cfg *rest.Config, method, path, body string, want int) error {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, DialContext: cfg.Dial, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, method, cfg.Host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%d: %.200s", resp.StatusCode, answer)
	}
	return err
}

// Once asks a cluster for one object, on a connection of its own.
func Once(ctx context.Context, cfg *rest.Config) error {
	return Get(ctx, cfg, "/api/v1/namespaces/default")
}

// WriteOnce has a cluster answer a POST, on a connection of its own. Nothing on the way
// may send it twice, unless it is known that nobody has looked at it.
func WriteOnce(ctx context.Context, cfg *rest.Config) error {
	return ask(ctx, cfg, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, http.StatusCreated)
}

// Refused is the HTTP status of an answer that is none of those that were asked for.
type Refused int

func (r Refused) Error() string { return fmt.Sprintf("answered %d", int(r)) }

// WatchConfigMap reads a watch from a version on, or from now if that is empty,
// until it breaks or event gives an error.
func WatchConfigMap(ctx context.Context, cfg *rest.Config, namespace, name, version string, event func(json.RawMessage) error) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=" + name}, "resourceVersion": {version}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/namespaces/"+namespace+"/configmaps?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("beginning a watch: %v", err) // io.EOF in it would be no end of a watch
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Refused(resp.StatusCode)
	}
	for decoder := json.NewDecoder(resp.Body); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		if err := event(raw); err != nil {
			return err
		}
	}
}
