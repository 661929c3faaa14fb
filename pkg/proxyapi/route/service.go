package route

import (
	"net"
	"strconv"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Service is a Service on a managed cluster.
type Service struct {
	// Scheme is http, https, or tcp for a connection that nobody looks into.
	Scheme          string
	Namespace, Name string
	// Port is a number, a name, or empty for the Service's only one.
	Port string
}

const servicePath = "/api/v1/namespaces/"

// prefix is the path under which the proxy API has the Service.
func (s Service) prefix() string {
	if s == (Service{}) {
		return ""
	}
	return servicePath + s.Namespace + "/services/" + s.Scheme + ":" + s.Name + ":" + s.Port + "/proxy-service"
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
	s := Service{Scheme: "https", Namespace: parts[0], Name: parts[2]}
	if fields := strings.Split(parts[2], ":"); len(fields) == 2 {
		s.Name, s.Port = fields[0], fields[1]
	} else if len(fields) == 3 {
		s.Scheme, s.Name, s.Port = fields[0], fields[1], fields[2]
		if s.Scheme == "" {
			s.Scheme = "https"
		}
	}
	if s.Scheme != "http" && s.Scheme != "https" {
		return badRequest("scheme %q of a Service must be http or https", s.Scheme)
	}
	if err := s.check(); err != nil {
		return err
	}
	t.Service, t.Path = s, "/"+parts[4]
	return nil
}

func (s Service) check() error {
	if !label(s.Namespace) || !label(s.Name) {
		return badRequest("%q in namespace %q cannot be a Service: both must be DNS labels, written plainly", s.Name, s.Namespace)
	}
	if s.Port == "" {
		return nil
	}
	if number, err := strconv.Atoi(s.Port); err == nil {
		if number < 1 || number > 65535 || strconv.Itoa(number) != s.Port {
			return badRequest("port %q of a Service must be from 1 to 65535", s.Port)
		}
		return nil
	}
	if !label(s.Port) || len(s.Port) > 15 {
		return badRequest("port %q of a Service is neither a number nor a port's name", s.Port)
	}
	return nil
}

// label is what names of namespaces, Services and ports are made of (RFC 1123).
func label(name string) bool {
	return !strings.Contains(name, ".") && len(name) <= 63 && identity.ValidateCluster(name) == nil
}

// ParseAuthority takes the target of a CONNECT request apart:
// <cluster>:443 is the cluster's kube-apiserver,
// <service>.<namespace>.svc.<cluster>:<port> one of its Services. What looks
// like a Service is one, whatever clusters there are. The error is an *Error.
func ParseAuthority(authority string) (Target, error) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443 or <service>.<namespace>.svc.<cluster>:<port>, and not %q", authority)
	}
	if parts := strings.SplitN(host, ".", 4); len(parts) == 4 && parts[2] == "svc" {
		if err := identity.ValidateCluster(parts[3]); err != nil {
			return Target{}, notFound("the target of CONNECT must be <service>.<namespace>.svc.<cluster>:<port>: %v", err)
		}
		t := Target{Cluster: parts[3], Path: "/", Service: Service{Scheme: "tcp", Namespace: parts[1], Name: parts[0], Port: port}}
		if port == "" {
			return Target{}, badRequest("the target of CONNECT must have a port")
		}
		return t, t.Service.check()
	}
	if err := identity.ValidateCluster(host); err != nil {
		return Target{}, notFound("the target of CONNECT must be <cluster>:443: %v", err)
	}
	if port != "443" {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443, and not port %q", port)
	}
	return Target{Cluster: host, Path: "/"}, nil
}
