package agentapi

import (
	"fmt"
	"net/http"
)

// Beginnings of headers.
const (
	// FrontProxy begins Kubernetes' front-proxy headers (requestheader), by which the
	// proxy API asserts the user of a request.
	FrontProxy = "X-Remote-"
	// ForService begins the headers that name a Service.
	ForService = "Cluster-Proxy-"
	// Impersonate begins the headers of a request that asks for impersonation.
	Impersonate = "Impersonate-"
)

// ExtraKeys are the keys of users' extras that every agent asserts: those of Kubernetes
// itself, and OpenShift's, which narrows what a token is good for. The agent has a right to
// each, and to those of the customized variable extraKeys.
var ExtraKeys = []string{
	"authentication.kubernetes.io/credential-id", "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid",
	"authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid", "scopes.authorization.openshift.io",
}

// Forwarded are the beginnings of headers in which a proxy passes on the address of
// its client (RFC 7239). Only the previous hop may set them.
var Forwarded = []string{"Forwarded", "X-Real-Ip", "X-Forwarded-"}

// Leaving is in an agent's answer over HTTP/2 if the next request should use another
// connection.
const Leaving = "Cluster-Proxy-Leaving"

// WebSocketToken begins the WebSocket protocol by which browsers send a token, see
// k8s.io/apiserver's package websocket.
const WebSocketToken = "base64url.bearer.authorization.k8s.io."

const (
	protocol  = ForService + "Proto"
	namespace = ForService + "Namespace"
	service   = ForService + "Service"
	port      = ForService + "Port"
)

// ServiceAuthorization becomes the Authorization of a request to a Service whose entry
// in the list allows it.
const ServiceAuthorization = ForService + "Authorization"

// agent is in a request that the agent answers itself. Its value says with what. An agent
// that does not know it refuses the request, as one for a Service that makes no sense.
const (
	agent        = ForService + "Agent"
	agentMetrics = "metrics"
)

// Begins reports whether a header's name begins with prefix.
func Begins(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if fold(name[i]) != fold(prefix[i]) {
			return false
		}
	}
	return true
}

func fold(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}

// BeginsAny reports whether a header's name begins with one of prefixes.
func BeginsAny(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if Begins(name, prefix) {
			return true
		}
	}
	return false
}

// Has reports whether there is a header whose name begins with prefix.
func Has(header http.Header, prefix string) bool {
	for name := range header {
		if Begins(name, prefix) {
			return true
		}
	}
	return false
}

// Delete deletes the headers whose names begin with one of prefixes.
func Delete(header http.Header, prefixes []string) {
	for name := range header {
		if BeginsAny(name, prefixes) {
			delete(header, name)
		}
	}
}

// SetService names a Service. The zero value is none.
func SetService(header http.Header, s Service) {
	if s == (Service{}) {
		return
	}
	header.Set(protocol, s.Protocol)
	header.Set(namespace, s.Namespace)
	header.Set(service, s.Service)
	header.Set(port, s.Port)
}

// ServiceOf returns the Service that headers name. Each header must occur once, in its
// plain spelling: two readers must not understand it in two ways.
func ServiceOf(header http.Header) (Service, error) {
	for name, values := range header {
		switch {
		case !Begins(name, ForService):
		case len(values) != 1:
			return Service{}, fmt.Errorf("header %s is there %d times", name, len(values))
		case name != protocol && name != namespace && name != service && name != port && name != ServiceAuthorization:
			return Service{}, fmt.Errorf("header %q is not one of those that name a Service", name)
		}
	}
	s := Service{Namespace: header.Get(namespace), Service: header.Get(service), Port: header.Get(port), Protocol: header.Get(protocol)}
	if err := s.Check(); err != nil {
		return s, err
	}
	if s.Protocol == "" {
		return s, fmt.Errorf("the request for Service %s/%s names no protocol", s.Namespace, s.Service)
	}
	return s, nil
}

// SetAgentMetrics asks for the metrics of the agent.
func SetAgentMetrics(header http.Header) { header.Set(agent, agentMetrics) }

// ForAgent reports whether a request is for the agent itself.
func ForAgent(header http.Header) bool {
	_, ok := header[agent]
	return ok
}

// CheckForAgentMetrics is an error unless a request is for the metrics of the agent and for
// nothing else.
func CheckForAgentMetrics(header http.Header) error {
	for name := range header {
		if Begins(name, ForService) && name != agent {
			return fmt.Errorf("header %q does not go with %s", name, agent)
		}
	}
	if values := header[agent]; len(values) != 1 || values[0] != agentMetrics {
		return fmt.Errorf("header %s is %q, and must be %q", agent, values, agentMetrics)
	}
	return nil
}
