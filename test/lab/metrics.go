package lab

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

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
		value, err := scrape.Metric(ctx, address, name)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}
