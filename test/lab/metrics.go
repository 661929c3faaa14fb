package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metric adds up the samples that start with name in what address serves.
func Metric(ctx context.Context, address, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return Sum(response.Body, name)
}

// Sum adds up the samples that start with name and have these labels.
func Sum(metrics io.Reader, name string, labels ...string) (sum float64, err error) {
	text, err := io.ReadAll(metrics)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		without := func(label string) bool { return !strings.Contains(line, label) }
		if !strings.HasPrefix(line, name) || slices.ContainsFunc(labels, without) {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}

// PodMetric adds up a metric over the addon's pods of a cluster that a selector
// finds. It needs a lab without nodes, where they are processes.
func (l *Lab) PodMetric(ctx context.Context, cluster, namespace, selector string, port int32, name string) (float64, error) {
	client, err := l.cluster(cluster).clientset()
	if err != nil {
		return 0, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, pod := range pods.Items {
		address, err := l.PodAddress(cluster, pod.UID, port)
		if err != nil {
			continue // a pod that ends, or has not started
		}
		value, err := Metric(ctx, address, name)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}
