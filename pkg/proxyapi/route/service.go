package route

import (
	"net"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const servicePath = "/api/v1/namespaces/"

// servicePrefix is the path under which the proxy API has the Service.
func (t Target) servicePrefix() string {
	s := t.Service
	if !t.ForService() {
		return ""
	}
	return servicePath + s.Namespace + "/services/" + s.Protocol + ":" + s.Service + ":" + s.Port + "/proxy-service"
}

// cutService finds upstream's form of a Service in the path:
// /api/v1/namespaces/<namespace>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>.
// The middle is read as Kubernetes reads it in its own proxy subresource: with
// one colon it is <service>:<port>, so a scheme with an omitted port is
// https:<service>: with both colons.
func (t *Target) cutService() error {
	rest, ok := strings.CutPrefix(t.Path, servicePath)
	if !ok {
		return nil
	}
	parts := strings.SplitN(rest, "/", 5)
	if len(parts) != 5 || parts[1] != "services" || parts[3] != "proxy-service" {
		return nil
	}
	s := agentapi.Service{Protocol: "https", Namespace: parts[0], Service: parts[2]}
	if fields := strings.Split(parts[2], ":"); len(fields) == 2 {
		s.Service, s.Port = fields[0], fields[1]
	} else if len(fields) == 3 {
		s.Protocol, s.Service, s.Port = fields[0], fields[1], fields[2]
		if s.Protocol == "" {
			s.Protocol = "https"
		}
	}
	if s.Protocol != "http" && s.Protocol != "https" {
		return badRequest("scheme %q of a Service must be http or https", s.Protocol)
	}
	if err := s.Check(); err != nil {
		return badRequest("%v", err)
	}
	t.Service, t.Path = s, "/"+parts[4]
	return nil
}

// ParseAuthority takes the target of a CONNECT request apart:
// <cluster>:443 is the cluster's kube-apiserver,
// <service>.<namespace>.svc.<cluster>:<port> one of its Services. A name that
// looks like a Service is one, whatever clusters there are. The error is an *Error.
func ParseAuthority(authority string) (Target, error) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443 or <service>.<namespace>.svc.<cluster>:<port>, and not %q", authority)
	}
	if parts := strings.SplitN(host, ".", 4); len(parts) == 4 && parts[2] == "svc" {
		if err := identity.ValidateCluster(parts[3]); err != nil {
			return Target{}, notFound("the target of CONNECT must be <service>.<namespace>.svc.<cluster>:<port>: %v", err)
		}
		t := Target{Cluster: parts[3], Path: "/", Service: agentapi.Service{Protocol: "tcp", Namespace: parts[1], Service: parts[0], Port: port}}
		if port == "" {
			return Target{}, badRequest("the target of CONNECT must have a port")
		}
		if err := t.Service.Check(); err != nil {
			return Target{}, badRequest("%v", err)
		}
		return t, nil
	}
	if err := identity.ValidateCluster(host); err != nil {
		return Target{}, notFound("the target of CONNECT must be <cluster>:443: %v", err)
	}
	if port != "443" {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443, and not port %q", port)
	}
	return Target{Cluster: host, Path: "/"}, nil
}
