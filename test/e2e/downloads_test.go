package e2e

import (
	"context"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// downloads are users who each read a large object again and again.
type downloads struct {
	users   [4]atomic.Int64 // bytes
	failed  atomic.Int64
	began   time.Time
	stop    context.CancelFunc
	waiting sync.WaitGroup
}

const largeObject = "e2e-large"

// start makes the object and has the users begin. They go on until figures.
func (d *downloads) start(ctx context.Context, t *testing.T, cluster string) {
	t.Helper()
	maps := suite.Clientset(t, installed.Direct(cluster)).CoreV1().ConfigMaps("default")
	noise := make([]byte, 450<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	large := corev1ac.ConfigMap(largeObject, "default").WithData(map[string]string{"large": hex.EncodeToString(noise)})
	if _, err := maps.Apply(ctx, large, metav1.ApplyOptions{FieldManager: "e2e"}); err != nil {
		t.Fatal(err)
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.began = time.Now()
	for i := range d.users {
		client, err := rest.HTTPClientFor(installed.ThroughProxyAPI(cluster))
		if err != nil {
			t.Fatal(err)
		}
		d.waiting.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				if err := d.download(ctx, client, installed.ThroughProxyAPI(cluster).Host, i); err != nil && ctx.Err() == nil {
					d.failed.Add(1)
					t.Logf("a download failed: %v", err)
					<-time.After(time.Second)
				}
			}
		})
	}
}

func (d *downloads) download(ctx context.Context, client *http.Client, host string, user int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/api/v1/namespaces/default/configmaps/"+largeObject, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", "identity") // count what the network carries
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(counter{&d.users[user]}, resp.Body)
	return err
}

type counter struct{ bytes *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

// figures ends the downloads and returns their goodput in Mbit/s and Jain's
// index of fairness: 1 if all users had the same, 1/n if one had everything.
func (d *downloads) figures() (goodput, fairness float64) {
	if d.stop == nil {
		return 0, 0
	}
	took := time.Since(d.began)
	var sum, squares float64
	for i := range d.users {
		n := float64(d.users[i].Load())
		sum += n
		squares += n * n
	}
	d.stop()
	d.waiting.Wait()
	if sum == 0 {
		return 0, 0
	}
	return sum * 8 / 1e6 / took.Seconds(), sum * sum / (float64(len(d.users)) * squares)
}
