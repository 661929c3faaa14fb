package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// meetingDialer answers when all clusters are dialed, and refuses one of them.
type meetingDialer struct {
	all     *sync.WaitGroup
	refused string
}

func (d meetingDialer) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	d.all.Done()
	d.all.Wait()
	if address == net.JoinHostPort(identity.HandlerHost(d.refused), identity.HandlerPort) {
		return nil, errors.New("no agent")
	}
	near, _ := net.Pipe()
	return near, nil
}

// TestCheckDialsAtOnce wants what helm test says of one cluster not to depend on others, and
// no success without a cluster.
func TestCheckDialsAtOnce(t *testing.T) {
	var clusters []string
	for i := range dialedAtOnce {
		clusters = append(clusters, fmt.Sprintf("c%d", i))
	}
	var out bytes.Buffer
	dialer := meetingDialer{all: &sync.WaitGroup{}, refused: "c3"}
	dialer.all.Add(len(clusters))
	err := check(t.Context(), &out, dialer, clusters)
	if err == nil || err.Error() != `dialing cluster "c3": no agent` || strings.Count(out.String(), ": reached in ") != len(clusters)-1 {
		t.Errorf("%v, and\n%s\nwant c3 not reached, and all others", err, out.String())
	}
	if err := check(t.Context(), &out, dialer, nil); err == nil || !strings.Contains(err.Error(), "no cluster has the addon Available") {
		t.Errorf("without a cluster: %v, want an error", err)
	}
}

// TestCheckWaits wants the addon's clusters to be waited for until it is Available on all of them,
// whatever the hub answers first, and for no longer than was said.
func TestCheckWaits(t *testing.T) {
	all, one, none := addons{available: []string{"a", "b"}}, addons{available: []string{"a"}, others: 1}, addons{}
	refused := errors.New("forbidden")
	for name, c := range map[string]struct {
		most     time.Duration
		answers  []any // each for a second, the last one from then on
		want     []string
		after    time.Duration
		wantFail bool
	}{
		"not at all":        {answers: []any{one}, want: one.available},
		"until all are":     {most: time.Minute, answers: []any{refused, none, one, all}, want: all.available, after: 3 * time.Second},
		"not for one":       {most: 10 * time.Second, answers: []any{none, one}, want: one.available, after: 10 * time.Second},
		"no right all time": {most: 10 * time.Second, answers: []any{refused}, after: 10 * time.Second, wantFail: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []string
				err := checkUntil(t.Context(), c.most, func(context.Context) (addons, error) {
					answer := c.answers[min(int(time.Since(began)/time.Second), len(c.answers)-1)]
					if err, ok := answer.(error); ok {
						return addons{}, err
					}
					return answer.(addons), nil
				}, func(clusters []string) error {
					got = clusters
					return nil
				})
				if (err != nil) != c.wantFail || !slices.Equal(got, c.want) || time.Since(began) != c.after {
					t.Errorf("got %v and %v after %s, want %v after %s", got, err, time.Since(began), c.want, c.after)
				}
			})
		})
	}
}

// TestCheckUntil has dials fail for some seconds after the clusters are Available.
func TestCheckUntil(t *testing.T) {
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		most, fails, after time.Duration
		want               error
	}{
		"at once":        {most: time.Minute},
		"later":          {most: time.Minute, fails: 5 * time.Second, after: 5 * time.Second},
		"not in time":    {most: 10 * time.Second, fails: time.Hour, after: 10 * time.Second, want: refused},
		"without a time": {fails: time.Second, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := checkUntil(t.Context(), c.most, func(context.Context) (addons, error) { return addons{available: []string{"a"}}, nil }, func(clusters []string) error {
					if !slices.Equal(clusters, []string{"a"}) {
						t.Errorf("got %v", clusters)
					}
					if time.Since(began) < c.fails {
						return refused
					}
					return nil
				})
				if !errors.Is(err, c.want) || time.Since(began) != c.after {
					t.Errorf("got %v after %s, want %v after %s", err, time.Since(began), c.want, c.after)
				}
			})
		})
	}
}
