package scope

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Via names the proxy API of one hub in the header that RFC 9110 has for this. All
// its replicas have the same name, and other hubs have others.
//
// Where the hub is a managed cluster of itself, the path of one request can lead
// through it again and again, as often as the path has room for, and each time
// would hold a request, a connection and a stream. The second time is refused. A
// hub that is another hub's managed cluster is no loop.
type Via string

// ViaHub makes a name of what every replica knows of the hub: its kube-apiserver's CA.
func ViaHub(hub *rest.Config) (Via, error) {
	ca := hub.CAData
	if len(ca) == 0 && hub.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(hub.CAFile); err != nil {
			return "", fmt.Errorf("reading the CA of the hub's kube-apiserver: %w", err)
		}
	}
	return Via(fmt.Sprintf("cluster-proxy-%x", sha256.Sum256(append(ca, hub.Host...)))[:32]), nil
}

// Add signs a request for a kube-apiserver. Services may answer otherwise to
// requests that come by a proxy, and none leads here with a user.
func (v Via) Add(r *httputil.ProxyRequest) {
	if !Of(r.In.Context()).Target.ForService() {
		v.AddTo(r.Out.Header)
	}
}

func (v Via) AddTo(header http.Header) {
	if v != "" {
		header.Add("Via", "1.1 "+string(v))
	}
}

// Check refuses a request that came through this hub's proxy API already.
func (v Via) Check(header http.Header) error {
	if v == "" {
		return nil
	}
	for _, line := range header["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			if fields := strings.Fields(hop); len(fields) > 1 && fields[1] == string(v) {
				return status.New(http.StatusLoopDetected, "the request came through this hub's proxy API before: ask the hub for the cluster that is meant")
			}
		}
	}
	return nil
}
