package kubectlplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// sandbox is the Content-Security-Policy of what a cluster answers. All that one port leads to has one origin,
// now and later, so a page of a pod could send any request as the user while it is open. A sandboxed
// page has an origin of its own, which isForeign refuses.
const sandbox = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

// proxyOptions are the flags of the command proxy.
type proxyOptions struct {
	port        uint16
	acceptHosts []string
}

func proxyCommand(p *cli.Factory) *cobra.Command {
	var o proxyOptions
	cmd := &cobra.Command{
		Use:   "proxy CLUSTER|@VIEW",
		Short: "Open a port on this machine that leads to a cluster or a view",
		Long: `Open a port on 127.0.0.1 that leads to the Kubernetes API of a cluster, or of a FleetView (@VIEW), as kubectl proxy does for the hub.
Every program on this machine that connects to it acts as you, without a credential: do not leave it open where others log in. The header
Authorization of a program is removed, because it is not the hub's. Watches, exec, attach and port-forward work.

Web pages cannot use the port: requests for another host name than those of --accept-hosts are refused (DNS rebinding), and so are
requests that a browser marks as coming from another site. Pages that the cluster itself serves run in a sandbox, since they could act as you
otherwise, on the next cluster too that you open the port for. For a web UI, use kubectl port-forward.`,
		Example: `  kubectl clusterproxy proxy cluster1 --port=8001
  curl http://127.0.0.1:8001/api/v1/namespaces/default/pods
  kubectl --server=http://127.0.0.1:8001 get pods`,
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: p.CompleteClusterOrView,
		RunE:              func(cmd *cobra.Command, args []string) error { return localProxy(cmd.Context(), p, args[0], o) },
	}
	cmd.Flags().Uint16VarP(&o.port, "port", "p", 8001, "the port; 0 takes a free one, which the first line of output names")
	cmd.Flags().StringSliceVar(&o.acceptHosts, "accept-hosts", []string{`^localhost$`, `^127\.0\.0\.1$`, `^\[::1\]$`}, "regular expressions of host names that a request may be for")
	return cmd
}

// localProxy serves until ctx is done.
func localProxy(ctx context.Context, p *cli.Factory, target string, o proxyOptions) error {
	var hosts []*regexp.Regexp
	for _, text := range o.acceptHosts {
		host, err := regexp.Compile(text)
		if err != nil {
			return fmt.Errorf("--accept-hosts has %q: %w", text, err)
		}
		hosts = append(hosts, host)
	}
	config, err := p.ConfigFor(ctx, target)
	if err != nil {
		return err
	}
	handler, err := newLocalProxy(config, hosts)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return fmt.Errorf("%w: choose another port, or --port=0 for a free one", err)
	}
	fmt.Fprintf(p.Out, "http://%s leads to %s, as you. Ctrl-C ends it.\n", listener.Addr(), cli.OneLine(target))
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// localProxyHandler sends requests on as the user of a kubeconfig.
type localProxyHandler struct {
	hosts []*regexp.Regexp
	// upgrades are sent by HTTP/1.1: HTTP/2 has no header Upgrade.
	requests, upgrades *httputil.ReverseProxy
}

func newLocalProxy(config *rest.Config, hosts []*regexp.Regexp) (*localProxyHandler, error) {
	to, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	h := &localProxyHandler{hosts: hosts}
	if h.requests, err = reverseProxy(config, to); err != nil {
		return nil, err
	}
	oldest := rest.CopyConfig(config)
	oldest.NextProtos = []string{"http/1.1"}
	h.upgrades, err = reverseProxy(oldest, to)
	return h, err
}

func reverseProxy(config *rest.Config, to *url.URL) (*httputil.ReverseProxy, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.Timeout = 0 // of a whole answer: a watch has no end
	transport, err := rest.TransportFor(unlimited)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Header.Del("Authorization")    // the transport has the user's
			if r.In.Header.Get("Origin") != "" { // this proxy's, which nobody knows beyond it; a watch by WebSocket needs one
				r.Out.Header.Set("Origin", to.Scheme+"://"+to.Host)
			}
		},
		Transport: repeatingTransport{transport},
		ErrorLog:  log.New(io.Discard, "", 0), // the client sees what was cut off
		ModifyResponse: func(answer *http.Response) error {
			answer.Header.Add("Content-Security-Policy", sandbox) // beside its own: a browser obeys both
			answer.Header.Del("Service-Worker-Allowed")
			return nil
		},
		FlushInterval: -1, // an event of a watch does not wait for the next one
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, "the hub does not answer: "+err.Error()+"; see: kubectl clusterproxy check")
		},
	}, nil
}

// repeatingTransport sends a write again that a proxy API has not looked at because it
// restarts.
type repeatingTransport struct{ http.RoundTripper }

// RoundTrip is part of http.RoundTripper.
func (t repeatingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r, err := httprelay.RepeatBody(r)
	if err != nil {
		return nil, err
	}
	return t.RoundTripper.RoundTrip(r)
}

// ServeHTTP is part of http.Handler.
func (h *localProxyHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.accepts(r.Host) {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("host %q is not one of --accept-hosts", r.Host))
		return
	}
	if isForeign(r) {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the request is from a page of another site")
		return
	}
	httprelay.IgnoreH2C(r.Header)
	if r.Header.Get("Upgrade") != "" {
		h.upgrades.ServeHTTP(w, r)
		return
	}
	h.requests.ServeHTTP(w, r)
}

// accepts reports whether a request may be for a host. A name that an attacker's DNS server
// has led here is none.
func (h *localProxyHandler) accepts(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
		if strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	for _, accepted := range h.hosts {
		if accepted.MatchString(host) {
			return true
		}
	}
	return false
}

// isForeign reports whether a browser sends the request for a page of another origin. Other
// ports of this machine are other origins. WebSockets obey no CORS, but have an Origin.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the user typed the address
	default:
		return true
	}
	for _, text := range r.Header.Values("Origin") {
		if origin, err := url.Parse(text); err != nil || origin.Scheme != "http" || origin.Host != r.Host {
			return true
		}
	}
	return false
}

// refuse answers as Kubernetes does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: cli.OneLine(message),
	}
	_ = json.NewEncoder(w).Encode(status)
}
