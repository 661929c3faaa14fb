//go:build benchfleet

package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// Simulated members and the view over them are processes of their own, so that what each
// of them uses is known. A process ends when its input does, and so with its parent.
const (
	childRole = "BENCH_FLEET_PROCESS"
	childSpec = "BENCH_FLEET_SPEC"
)

// viewTimeout is that of the view over simulated members, and of the lab's.
const viewTimeout = 5 * time.Second

// simulated says which members to simulate.
type simulated struct {
	Clusters, Pods int
	// Delay is a round trip to a member.
	Delay time.Duration
	// Silent members answer nothing: none, or the one in the middle.
	Silent bool
}

// childAddresses is what a process says about itself.
type childAddresses struct {
	// Control has the members' counters.
	Control string
	Members []string
	View    string
}

// childProcess returns what this process is for, if it was started by startChild.
func childProcess() func() error {
	switch os.Getenv(childRole) {
	case "members":
		return func() error {
			var s simulated
			if err := json.Unmarshal([]byte(os.Getenv(childSpec)), &s); err != nil {
				return err
			}
			return s.serve()
		}
	case "view":
		return func() error {
			var members []string
			if err := json.Unmarshal([]byte(os.Getenv(childSpec)), &members); err != nil {
				return err
			}
			return serveView(members)
		}
	}
	return nil
}

// child is a process that the benchmark has started.
type child struct {
	childAddresses
	// dir is its folder in /proc.
	dir string
}

func startChild(t *testing.T, role string, spec any) child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childRole+"="+role, childSpec+"="+string(text))
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	c := child{dir: filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.childAddresses)
	}
	if err != nil {
		t.Fatalf("starting a process with %s: %v", role, err)
	}
	return c
}

// say tells the parent where this process listens, and returns when the parent has ended.
func say(addresses childAddresses) error {
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// listen serves HTTP at an address of its own.
func listen(handler http.Handler) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(listener, handler) }()
	return listener.Addr().String(), nil
}

// serve serves simulated members.
func (s simulated) serve() error {
	var addresses childAddresses
	var clusters []*simulatedCluster
	for i := range s.Clusters {
		c := newSimulatedCluster(clusterName(i), s.Pods, s.Silent && i == s.Clusters/2)
		address, err := listen(c)
		if err != nil {
			return err
		}
		if s.Delay > 0 {
			address = suite.DelayedListener(nil, address, s.Delay)
		}
		clusters, addresses.Members = append(clusters, c), append(addresses.Members, address)
	}
	var err error
	addresses.Control, err = listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most := int64(0)
		for _, c := range clusters {
			if n := c.lists.Swap(0); n > most {
				most = n
			}
		}
		fmt.Fprint(w, most)
	}))
	if err != nil {
		return err
	}
	return say(addresses)
}

// clusterName is sorted as its number is.
func clusterName(i int) string { return fmt.Sprintf("cluster%04d", i) }

// httpMember is a member of a view that is reached without tunnel and without TLS.
type httpMember struct {
	name, address string
	transport     http.RoundTripper
}

func (m *httpMember) Name() string { return m.name }
func (m *httpMember) UID() string  { return "uid-of-" + m.name }

func (m *httpMember) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "http", m.address, ""
	return m.transport.RoundTrip(out)
}

// serveView serves a view of members at addresses.
func serveView(addresses []string) error {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	var members []fleet.Member
	for i, address := range addresses {
		members = append(members, &httpMember{clusterName(i), address, transport})
	}
	view := fleet.View{
		Name: "all", User: "bench", Timeout: viewTimeout,
		Members: func(context.Context) ([]fleet.Member, error) {
			return slices.Clone(members), nil
		},
		Relay: func(w http.ResponseWriter, _ *http.Request, _ fleet.Member) {
			http.Error(w, "not here", http.StatusNotFound)
		},
	}
	handler := fleetview.New(fleetview.Options{})
	address, err := listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == collectPath {
			debug.FreeOSMemory()
			return
		}
		handler.Serve(w, r, view)
	}))
	if err != nil {
		return err
	}
	return say(childAddresses{View: address})
}

// collectPath collects the garbage of a view's process.
const collectPath = "/bench/collect"

// plainPlace is at an address, without TLS.
func plainPlace(t *testing.T, address string) place {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return place{&http.Client{Transport: transport}, (&url.URL{Scheme: "http", Host: address}).String()}
}

// ask gets a small answer of a process of the benchmark.
func (p place) ask(t *testing.T, path string) string {
	t.Helper()
	resp, err := p.client.Get(p.base + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
