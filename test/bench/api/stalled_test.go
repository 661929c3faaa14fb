//go:build benchapi

package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	bulkGet       = "LIST of 16 MiB"
	unread        = "beside 16 stalled readers"
	unreadUploads = "beside 16 stalled uploads"
	bulkItems     = 32
)

// makeBulk makes objects that are bulkItems half MiB together.
func makeBulk(t *testing.T, endpoints []suite.Endpoint, ns string) {
	cs := suite.Clientset(t, endpoints[0].Cfg)
	for i := range bulkItems {
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bulk", i), Labels: map[string]string{"bench": "bulk"}}, Data: map[string]string{"a": strings.Repeat("x", 512<<10)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// bulk measures how fast one large answer comes.
func (f figures) bulk(t *testing.T, endpoints []suite.Endpoint, path string) {
	if !load.Rows.MatchString(bulkGet) {
		return
	}
	for round := range load.Rounds {
		for _, endpoint := range load.InTurn(endpoints, round) {
			t.Logf("%s, %s (%d of %d)", bulkGet, endpoint.Name, round+1, load.Rounds)
			client := load.Caller(t, endpoint.Cfg)
			start := time.Now()
			if err := load.Fetch(client, strings.TrimSuffix(endpoint.Cfg.Host, "/")+path, http.StatusOK); err != nil {
				t.Error(err)
				continue
			}
			f.add(bulkGet+", MB/s", endpoint.Name, bulkItems*(512<<10)/1e6/time.Since(start).Seconds())
		}
	}
}

// stalled measures a user beside others who ask for large answers and do not read
// them, and beside others whose uploads are not read. It also says what these take
// in our processes.
func (f figures) stalled(t *testing.T, endpoints []suite.Endpoint, ns, large, small string) {
	f.beside(t, unread, endpoints, small, func(ctx context.Context, t *testing.T, endpoint suite.Endpoint) (end func(), err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint.Cfg.Host, "/")+large, nil)
		if err != nil {
			return nil, err
		}
		resp, err := load.Caller(t, endpoint.Cfg).Do(req)
		if err != nil {
			return nil, err
		}
		return func() { _ = resp.Body.Close() }, nil
	})
	if !load.Rows.MatchString(unreadUploads) {
		return
	}
	path, err := makeDeafPod(t, endpoints, ns)
	if err != nil {
		t.Errorf("%s: %v", unreadUploads, err)
		return
	}
	f.beside(t, unreadUploads, endpoints, small, func(ctx context.Context, t *testing.T, endpoint suite.Endpoint) (end func(), err error) {
		body := &endless{}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(endpoint.Cfg.Host, "/")+path, body)
		if err != nil {
			return nil, err
		}
		over := make(chan error, 1)
		go func() {
			resp, err := load.Caller(t, endpoint.Cfg).Do(req)
			if err == nil {
				_ = resp.Body.Close()
				err = fmt.Errorf("answered %s", resp.Status)
			}
			over <- err
		}()
		if err := body.stuck(over); err != nil {
			return nil, fmt.Errorf("an upload that is not read: %w", err)
		}
		return func() { <-over }, nil
	})
}

// endless is a body without an end.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

// stuck waits until nothing more is taken of the body, or the request is over.
func (e *endless) stuck(over <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for last, same := int64(0), 0; same < 3; {
		select {
		case err := <-over:
			return err
		case <-tick.C:
		}
		if now := e.taken.Load(); now == 0 || now != last {
			last, same = now, 0
		} else {
			same++
		}
	}
	return nil
}

// makeDeafPod makes a pod of which every request's body is left unread, and returns
// the path of its proxy. Its address is one of this machine that is not loopback:
// kube-apiservers proxy to no other.
func makeDeafPod(t *testing.T, endpoints []suite.Endpoint, ns string) (path string, err error) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(addresses, func(a net.Addr) bool {
		at, ok := a.(*net.IPNet)
		return ok && at.IP.To4() != nil && at.IP.IsGlobalUnicast()
	})
	if i < 0 {
		return "", errors.New("this machine has no address but loopback")
	}
	ip := addresses[i].(*net.IPNet).IP.String()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		var held []net.Conn // or the garbage collector would close them
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			held = append(held, conn)
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	const name = "deaf"
	pods := suite.Clientset(t, endpoints[0].Cfg).CoreV1().Pods(ns)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: name, Image: name}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "/api/v1/namespaces/" + ns + "/pods/" + name + ":" + port + "/proxy/", nil
}

// beside measures a user beside stallers others, each of whom begin gets stuck. Its
// result waits for one of them, whose context has ended.
func (f figures) beside(t *testing.T, row string, endpoints []suite.Endpoint, small string, begin func(context.Context, *testing.T, suite.Endpoint) (end func(), err error)) {
	const stallers = 16
	if !load.Rows.MatchString(row) {
		return
	}
	for round := range load.Rounds {
		for _, endpoint := range load.InTurn(endpoints, round) {
			t.Logf("%s, %s (%d of %d)", row, endpoint.Name, round+1, load.Rounds)
			_, before := load.Used(t)
			ctx, cancel := context.WithCancel(t.Context())
			var ends []func()
			var err error
			for range stallers {
				var end func()
				if end, err = begin(ctx, t, endpoint); err != nil {
					break
				}
				ends = append(ends, end)
			}
			if err != nil {
				t.Errorf("%s, %s: %v", row, endpoint.Name, err)
				cancel()
				continue
			}
			limited, done := context.WithTimeout(t.Context(), load.WarmUp+load.Measured)
			rate, took := load.Send(limited, t, endpoint.Cfg, small, 1, http.StatusOK)
			done()
			_, after := load.Used(t)
			f.add(row+", KiB each in our processes", endpoint.Name, (after-before)/stallers)
			if len(took) > 0 {
				f.add(row+", small GET per second", endpoint.Name, rate)
				f.add(row+", small GET p99 ms", endpoint.Name, took[len(took)*99/100].Seconds()*1e3)
			}
			cancel()
			for _, end := range ends {
				end()
			}
		}
	}
}
