package ownerpolicy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestCheck(t *testing.T) {
	readOnly, noStreams, noSecrets := Policy{ReadOnly: true}, Policy{NoStreams: true}, Policy{NoSecrets: true}
	pods := "/api/v1/namespaces/a/pods"
	for _, test := range []struct {
		policy       Policy
		method, path string
		upgrade      bool
		wantCap      string
	}{
		{Policy{}, "POST", pods + "/p/exec", true, ""},
		{Policy{AllowedReservedNames: []string{"a"}}, "DELETE", "/api/v1/secrets", false, ""},

		{readOnly, "GET", pods, false, ""},
		{readOnly, "HEAD", "/livez", false, ""},
		{readOnly, "GET", pods + "?watch=1", false, ""},
		{readOnly, "GET", pods + "/p/log?follow=1", false, ""},
		{readOnly, "GET", "/openapi/v3", false, ""},
		{readOnly, "GET", "/api/v1/secrets", false, ""},
		{readOnly, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false, ""},
		{readOnly, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", false, ""},
		{readOnly, "POST", "/apis/evil.example/v1/selfsubjectreviews", false, "readOnly"},
		{readOnly, "POST", "/apis/authorization.k8s.io/v1/selfsubjectreviews", false, "readOnly"},
		{readOnly, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews/x/token", false, "readOnly"},
		{readOnly, "POST", pods, false, "readOnly"},
		{readOnly, "POST", pods + "?dryRun=All", false, "readOnly"},
		{readOnly, "PUT", pods + "/p", false, "readOnly"},
		{readOnly, "PATCH", pods + "/p", false, "readOnly"},
		{readOnly, "DELETE", pods, false, "readOnly"},
		{readOnly, "DELETE", "/api/v1/watch/namespaces/a/pods", false, "readOnly"},
		{readOnly, "POST", "/version", false, "readOnly"},
		{readOnly, "BREW", "/version", false, "readOnly"},
		{readOnly, "GET", pods + "/p/exec?command=sh", true, "readOnly"},
		{readOnly, "GET", pods + "/p/exec?command=sh", false, "readOnly"},
		{readOnly, "GET", pods + "/p", true, "readOnly"},
		{readOnly, "GET", "/api/v1/namespaces/a/services/s/proxy/x", false, "readOnly"},
		{readOnly, "GET", "/api/v1/proxy/namespaces/a/pods/p", false, "readOnly"},

		{noStreams, "POST", pods, false, ""},
		{noStreams, "GET", pods + "/p/log?follow=1", false, ""},
		{noStreams, "POST", pods + "/p/exec", false, "noStreams"},
		{noStreams, "GET", pods + "/p/attach", true, "noStreams"},
		{noStreams, "GET", pods + "/p/portforward", true, "noStreams"},
		{noStreams, "GET", pods + "/p/%65xec", false, "noStreams"},
		{noStreams, "GET", "/api/v1/nodes/n/proxy/pods", false, "noStreams"},
		{noStreams, "GET", pods + "?watch=1", true, ""}, // a read, whose events come by WebSocket
		{readOnly, "GET", pods + "?watch=1", true, ""},
		{noStreams, "GET", pods, true, "noStreams"},
		{noSecrets, "GET", "/api/v1/secrets?watch=1", true, "noSecrets"},

		{noSecrets, "GET", pods, false, ""},
		{noSecrets, "POST", pods + "/p/exec", true, ""},
		{noSecrets, "GET", "/apis/example.org/v1/secrets", false, ""},
		{noSecrets, "GET", "/api/v1/secrets", false, "noSecrets"},
		{noSecrets, "GET", "/api/v1/watch/secrets", false, "noSecrets"},
		{noSecrets, "GET", "/api/v1/namespaces/a/secrets/s", false, "noSecrets"},
		{noSecrets, "GET", "/api/v1/namespaces/a/%73ecrets/s", false, "noSecrets"},
		{noSecrets, "POST", "/api/v1/namespaces/a/serviceaccounts/s/token", false, "noSecrets"},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		if test.upgrade {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		err := test.policy.Check(r)
		var capped *Capped
		switch {
		case test.wantCap == "" && err != nil:
			t.Errorf("%+v: %s %s: %v, want it to pass", test.policy, test.method, test.path, err)
		case test.wantCap != "" && (!errors.As(err, &capped) || capped.Cap != test.wantCap):
			t.Errorf("%+v: %s %s: %v, want it stopped by %s", test.policy, test.method, test.path, err, test.wantCap)
		}
	}
}

// TestUpgrades has headers that only some servers take for an upgrade; the owner's policy always does.
func TestUpgrades(t *testing.T) {
	for _, header := range []http.Header{
		{"Upgrade": {"websocket"}}, {"Upgrade": {""}}, {"Connection": {"Upgrade"}}, {"Connection": {"keep-alive", "xupgrade"}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header = header
		var capped *Capped
		if err := (Policy{NoStreams: true}).Check(r); !errors.As(err, &capped) {
			t.Errorf("%v: %v, want it stopped", header, err)
		}
	}
}

func TestServices(t *testing.T) {
	for _, test := range []struct {
		policy Policy
		want   bool
	}{{Policy{}, true}, {Policy{NoSecrets: true}, true}, {Policy{ReadOnly: true}, false}, {Policy{NoStreams: true}, false}} {
		if err := test.policy.CheckService(); (err == nil) != test.want {
			t.Errorf("%+v: %v; want it allowed: %v", test.policy, err, test.want)
		}
	}
}

// A policy that cannot be understood lets nothing pass, and one that is mended
// is followed without a restart.
func TestFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "policy")
		folder := NewFolder(dir, prometheus.NewRegistry())
		if _, err := folder.Policy(); err == nil {
			t.Error("a policy that was not read yet lets something pass")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = folder.Run(ctx) }()
		for _, step := range []struct {
			name, content string
			want          Policy
			wantErr       bool
		}{
			{name: "no ConfigMap"},
			{Key, "readOnly: true", Policy{ReadOnly: true}, false},
			{Key, "readOnly: yes please", Policy{}, true},
			{Key, "readOnlyy: true", Policy{}, true},
			{Key, "noSecrets: true\nnoSecrets: false", Policy{}, true},
			{Key, "allowedReservedNames: ['']", Policy{}, true},
			{Key, "", Policy{}, false},
			{"policy.yml", "readOnly: true", Policy{}, true},
			{Key, "allowedReservedNames: ['system:masters']", Policy{AllowedReservedNames: []string{"system:masters"}}, false},
		} {
			_ = os.RemoveAll(dir)
			if step.content != "" {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, step.name), []byte(step.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * interval)
			got, err := folder.Policy()
			if (err != nil) != step.wantErr || got.ReadOnly != step.want.ReadOnly || len(got.AllowedReservedNames) != len(step.want.AllowedReservedNames) {
				t.Errorf("%s: %q: %+v, %v; want %+v, error %v", step.name, step.content, got, err, step.want, step.wantErr)
			}
		}
	})
}

func TestNoOwnerPolicy(t *testing.T) {
	folder := NewFolder("", prometheus.NewRegistry())
	folder.Load()
	if policy, err := folder.Policy(); err != nil || policy.Caps() {
		t.Errorf("%+v, %v; want no caps", policy, err)
	}
	if err := (Policy{}).Check(&http.Request{}); err != nil {
		t.Error(err)
	}
}
