package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// measureCAs replaces both CAs. Every cluster's work gets the new hub CA beside the old one,
// then without it, and every agent a certificate of the new agent CA; the addon manager asks
// each agent through the tunnel whether it has them.
func measureCAs(ctx context.Context, w *world) error {
	requests, cpu, err := w.managerWork(ctx)
	if err != nil {
		return err
	}
	old, err := w.hubCA(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.configure(ctx, fmt.Sprintf(`{"metadata":{"annotations":{%q:"scale"}}}`, v1alpha1.RotateAnnotation)); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		is   func(ca []byte) bool
	}{
		{"every cluster trusts the new hub CA too, s", func(ca []byte) bool { return len(ca) > len(old) }},
		{"no cluster trusts the old hub CA, s", func(ca []byte) bool { return !bytes.Contains(ca, bytes.TrimSpace(old)) }},
	} {
		if err := w.await(ctx, "a CA's change at every cluster", 2*w.limit(), func() error { return w.awaitCA(ctx, step.is) }); err != nil {
			return err
		}
		w.add("addon manager, the CAs change: "+step.name, time.Since(began).Seconds())
	}
	quiet, later, took, err := w.awaitManager(ctx)
	if err != nil {
		return err
	}
	w.add("addon manager, the CAs change: quiet after, s", quiet.Sub(began).Seconds())
	w.add("addon manager, the CAs change: requests to the hub per cluster", (later-requests)/float64(w.size))
	w.add("addon manager, the CAs change: CPU ms per cluster", (took-cpu)*1000/float64(w.size))
	// Agents that have lost a server meanwhile take their time to find it again.
	return w.awaitShare(ctx, 0.9)
}

// hubCA is what everybody is to trust.
func (w *world) hubCA(ctx context.Context) ([]byte, error) {
	secret, err := w.kube.CoreV1().Secrets(namespace).Get(ctx, certificates.HubBundleSecret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return secret.Data["ca.crt"], nil
}

// awaitCA returns nil when what everybody is to trust satisfies a condition and is in every
// cluster's file.
func (w *world) awaitCA(ctx context.Context, is func(ca []byte) bool) error {
	ca, err := w.hubCA(ctx)
	if err != nil {
		return err
	}
	if !is(ca) {
		return fmt.Errorf("the hub has not taken the step")
	}
	n := 0
	for _, cluster := range names(w.size) {
		if has, err := os.ReadFile(filepath.Join(w.standIn.folder(cluster), "ca/ca.crt")); err == nil && bytes.Equal(bytes.TrimSpace(has), bytes.TrimSpace(ca)) {
			n++
		}
	}
	if n < w.size {
		return fmt.Errorf("%d of %d have it", n, w.size)
	}
	return nil
}
