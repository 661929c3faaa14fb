package hubapi

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
)

// StartGrace returns a Grace of ten minutes for the answers of a hub, which runs until the test
// ends.
func StartGrace(t testing.TB, hub kubernetes.Interface) *outage.Grace {
	o := outage.New(hub, 10*time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{Name: "outage"}), prometheus.NewCounter(prometheus.CounterOpts{Name: "answers"}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return o
}
