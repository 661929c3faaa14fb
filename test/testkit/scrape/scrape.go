// Package scrape reads the metrics of a process, for tests and benchmarks.
package scrape

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

// Metric is Sum of what address, host:port, serves.
func Metric(ctx context.Context, address, name string, labels ...string) (float64, error) {
	text, err := plainhttp.Get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return 0, err
	}
	return Sum(strings.NewReader(text), name, labels...)
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
