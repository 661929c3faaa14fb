//go:build benchapi

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/bench/load"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	bulkGet   = "LIST of 16 MiB"
	bulkItems = 32
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
