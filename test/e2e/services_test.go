package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/connector"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestServices goes the whole way: what the chart lists is enforced on the hub
// and by agents, resolved by the managed cluster's DNS, and reached by every
// endpoint, with the pods' NetworkPolicies in force. It disturbs nothing.
func TestServices(t *testing.T) {
	long.Test(t)
	needNodes(t)
	const prefix = "/api/v1/namespaces/"
	for _, cluster := range installed.Clusters {
		for _, endpoint := range installed.Endpoints(cluster) {
			if endpoint.Name == "direct" {
				continue // upstream's URL is the hub's
			}
			t.Run(cluster+"/"+endpoint.Name, func(t *testing.T) {
				for _, tc := range []struct {
					path, want string
					code       int
				}{
					{"default/services/http:web:80/proxy-service/", cluster, 200},
					{"default/services/http:web:http/proxy-service/", cluster, 200},
					{"default/services/http:web:/proxy-service/", cluster, 200},
					{"default/services/https:kubernetes:443/proxy-service/version", "gitVersion", 200},
					{"default/services/kubernetes:https/proxy-service/version", "gitVersion", 200},
					{"default/services/http:web:81/proxy-service/", "", 504},
					{"default/services/http:kubernetes:443/proxy-service/", "exposedServices", 403},
					{"kube-system/services/http:kube-dns:metrics/proxy-service/", "exposedServices", 403},
				} {
					err := suite.WaitUntil(t.Context(), suite.Timeout, func() error {
						got, err := suite.Ask(t.Context(), endpoint.Cfg, suite.Request{Method: http.MethodGet, Path: prefix + tc.path})
						if err == nil && (got.Code != tc.code || !strings.Contains(got.Body, tc.want)) {
							err = fmt.Errorf("%d %.300s, want %d and %q", got.Code, got.Body, tc.code, tc.want)
						}
						return err
					})
					if err != nil {
						t.Errorf("%s: %v", tc.path, err)
					}
				}
			})
		}
		t.Run(cluster+"/websocket", func(t *testing.T) {
			cfg := installed.ThroughProxyAPI(cluster)
			through := rest.CopyConfig(cfg)
			through.Host += prefix + "default/services/https:kubernetes:443/proxy-service"
			var got, stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
			defer cancel()
			err := suite.Executors(t, through, "cat")["websocket"].StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("over and back"), Stdout: &got, Stderr: &stderr})
			if err != nil || got.String() != "over and back" {
				t.Errorf("cat gave %q, %v, %s; want \"over and back\"", got.String(), err, stderr.String())
			}
		})
		t.Run(cluster+"/tcp", func(t *testing.T) {
			user := connector.Connector{Address: installed.ProxyAPI, CA: installed.HubCA, Token: installed.HubToken}
			conn, err := user.Dial(t.Context(), "web.default.svc."+cluster+":80")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || !bytes.Contains(got, []byte(cluster)) {
				t.Errorf("the Service answers %q, %v; want %s in it", got, err, cluster)
			}
			_, err = user.Dial(t.Context(), "kube-dns.kube-system.svc."+cluster+":53")
			if refusal := new(connect.Refusal); !errors.As(err, &refusal) || refusal.Code != http.StatusForbidden {
				t.Errorf("a Service that is not listed: %v, want 403", err)
			}
		})
	}
}
