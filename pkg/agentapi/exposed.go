package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// ExposedServicesConfigMap is the name of the ConfigMap on managed clusters, and the usual
	// one on the hub.
	ExposedServicesConfigMap = "cluster-proxy-exposed-services"
	// ExposedServicesKey is where the list is in a ConfigMap that we make.
	ExposedServicesKey = "services"
	// allClusters is OCM's ManagedClusterSet of all clusters.
	allClusters = "global"
)

// Service is what a request asks for.
type Service struct {
	Namespace string
	Service   string
	// Port is a number or a port's name; empty if none was named.
	Port string
	// Protocol is http, https or tcp.
	Protocol string
}

// ExposedService of the list.
type ExposedService struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// Port is a number or a port's name; empty means any.
	Port string `json:"port,omitempty"`
	// Protocol is http, https or tcp; empty means any.
	Protocol string `json:"protocol,omitempty"`
	// Clusters and ClusterSets name the clusters that the entry is about; without
	// both it is about all. Agents get the entries that are about their cluster,
	// without these.
	Clusters    []string `json:"clusters,omitempty"`
	ClusterSets []string `json:"clusterSets,omitempty"`
	// ForwardAuthorization lets callers log in to the Service: the header
	// Cluster-Proxy-Authorization of their requests is its Authorization.
	ForwardAuthorization bool `json:"forwardAuthorization,omitempty"`
	// Anonymous allows requests without a credential. Only the hub enforces it, and
	// agents do not get it.
	Anonymous bool `json:"anonymous,omitempty"`
}

// ExposedServices is what may be asked for. The zero value allows nothing.
type ExposedServices []ExposedService

// ServiceTerms say how a Service may be asked for.
type ServiceTerms struct{ Exposed, ForwardAuthorization, Anonymous bool }

// ParseExposedServices reads a ConfigMap's data. leftOut names the entries that are left out of
// the list because they have a mistake, such as an unknown field: what is meant by one is not known,
// and others must not stop for it. With err a key is no list at all, and nothing was read.
func ParseExposedServices(data map[string]string) (list ExposedServices, leftOut, err error) {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var entries []json.RawMessage
		content, err := yaml.YAMLToJSONStrict([]byte(data[key]))
		if err == nil {
			err = json.Unmarshal(content, &entries)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("parsing key %q of the exposed Services: %w", key, err)
		}
		for i, raw := range entries {
			var entry ExposedService
			err := yaml.UnmarshalStrict(raw, &entry)
			if err == nil {
				err = entry.check()
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("key %q of the exposed Services, entry %d is left out: %w", key, i+1, err))
				continue
			}
			if !slices.ContainsFunc(list, func(other ExposedService) bool { return reflect.DeepEqual(entry, other) }) {
				list = append(list, entry)
			}
		}
	}
	return list, errors.Join(problems...), nil
}

// Data is the inverse of ParseExposedServices: the data of a ConfigMap.
func (l ExposedServices) Data() map[string]string {
	raw, err := json.Marshal(append(ExposedServices{}, l...)) // never "null"
	if err != nil {
		return nil // strings always encode
	}
	return map[string]string{ExposedServicesKey: string(raw)}
}

// For returns what the agent of a cluster, which is in a ManagedClusterSet, needs
// of the list.
func (l ExposedServices) For(cluster, set string) ExposedServices {
	var out ExposedServices
	for _, entry := range l {
		if entry.about(cluster, set) {
			out = append(out, ExposedService{Namespace: entry.Namespace, Service: entry.Service, Port: entry.Port, Protocol: entry.Protocol,
				ForwardAuthorization: entry.ForwardAuthorization})
		}
	}
	return out
}

// about reports whether the entry is about a cluster.
func (e ExposedService) about(cluster, set string) bool {
	return len(e.Clusters) == 0 && len(e.ClusterSets) == 0 || slices.Contains(e.Clusters, cluster) || slices.Contains(e.ClusterSets, set)
}

// Terms are those of all entries that cover what is wanted of a cluster, which is
// in a ManagedClusterSet; an agent's own cluster has no names, since its entries
// are about no other. Ports are compared as they are written: an entry with a
// number does not cover a request by name, because only the managed cluster could
// tell whether they are the same.
func (l ExposedServices) Terms(cluster, set string, want Service) ServiceTerms {
	var terms ServiceTerms
	for _, entry := range l {
		if entry.covers(want) && entry.about(cluster, set) {
			terms.Exposed = true
			terms.ForwardAuthorization = terms.ForwardAuthorization || entry.ForwardAuthorization
			terms.Anonymous = terms.Anonymous || entry.Anonymous
		}
	}
	return terms
}

func (e ExposedService) covers(want Service) bool {
	return e.Namespace == want.Namespace && e.Service == want.Service &&
		(e.Port == "" || e.Port == want.Port) && (e.Protocol == "" || e.Protocol == want.Protocol)
}

// check reports what is wrong with an entry.
func (e ExposedService) check() error {
	if err := (Service{e.Namespace, e.Service, e.Port, e.Protocol}).Check(); err != nil {
		return err
	}
	for _, cluster := range e.Clusters {
		if err := identity.ValidateCluster(cluster); err != nil {
			return fmt.Errorf("clusters: %w", err)
		}
	}
	for _, set := range e.ClusterSets {
		if !label(set) {
			return fmt.Errorf("clusterSets: %q is not the name of a ManagedClusterSet", set)
		}
		if set == allClusters {
			return fmt.Errorf("clusterSets: %q has all clusters: leave clusters and clusterSets out", set)
		}
	}
	if e.Protocol == "tcp" && (e.ForwardAuthorization || e.Anonymous) {
		return errors.New("forwardAuthorization and anonymous are about HTTP: protocol tcp has neither")
	}
	return nil
}

// Check reports what is wrong with the words of a Service. Names that pass are
// single DNS labels, so that no other host can be made of them.
func (s Service) Check() error {
	if !label(s.Namespace) || len(s.Namespace) > 63 {
		return fmt.Errorf("namespace %q is not the name of a namespace", s.Namespace)
	}
	// From Kubernetes 1.36 on, a Service's name may begin with a digit.
	if !label(s.Service) || len(s.Service) > 63 {
		return fmt.Errorf("service %q is not the name of a Service", s.Service)
	}
	if !slices.Contains([]string{"", "http", "https", "tcp"}, s.Protocol) {
		return fmt.Errorf("protocol %q must be http, https, tcp or left out for any", s.Protocol)
	}
	if s.Port == "" {
		return nil
	}
	if number, err := strconv.Atoi(s.Port); err == nil {
		if number < 1 || number > 65535 || strconv.Itoa(number) != s.Port {
			return fmt.Errorf("port %q must be 1 to 65535", s.Port)
		}
		return nil
	}
	if !label(s.Port) || len(s.Port) > 15 {
		return fmt.Errorf("port %q is neither a number nor the name of a port", s.Port)
	}
	return nil
}

func (s Service) String() string {
	return fmt.Sprintf("%s Service %s/%s port %q", s.Protocol, s.Namespace, s.Service, s.Port)
}

// label reports whether name is a DNS label (RFC 1123).
func label(name string) bool {
	for _, c := range []byte(name) {
		if c == '.' {
			return false
		}
	}
	return identity.ValidateCluster(name) == nil
}
