package exposedservices

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// ConfigMap is the name of the ConfigMap on managed clusters, and the usual
	// one on the hub.
	ConfigMap = "cluster-proxy-exposed-services"
	// Key is where the list is in a ConfigMap that we make.
	Key = "services"
)

// Service is an entry of the list, or what a request asks for.
type Service struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// Port is a number or a port's name. In an entry, empty means any; in a
	// request, that none was named.
	Port string `json:"port,omitempty"`
	// Protocol is http, https or tcp; in an entry, empty means any.
	Protocol string `json:"protocol,omitempty"`
}

// List is what may be asked for. The zero value allows nothing.
type List []Service

// Parse reads a ConfigMap's data. Any mistake, an unknown field included, makes
// the whole of it an error: a list that is half read would deny without a word
// what its author allowed.
func Parse(data map[string]string) (List, error) {
	var list List
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var entries List
		if err := yaml.UnmarshalStrict([]byte(data[key]), &entries); err != nil {
			return nil, fmt.Errorf("parsing key %q of the exposed Services: %w", key, err)
		}
		for i, entry := range entries {
			if err := entry.Check(); err != nil {
				return nil, fmt.Errorf("key %q of the exposed Services, entry %d: %w", key, i+1, err)
			}
			if !slices.Contains(list, entry) {
				list = append(list, entry)
			}
		}
	}
	return list, nil
}

// Data is the inverse of Parse: the data of a ConfigMap.
func (l List) Data() map[string]string {
	raw, err := json.Marshal(append(List{}, l...)) // never "null"
	if err != nil {
		return nil // strings always encode
	}
	return map[string]string{Key: string(raw)}
}

// Allows reports whether an entry covers what is wanted. Ports are compared as
// they are written: an entry with a number does not cover a request by name,
// because only the managed cluster could tell whether they are the same.
func (l List) Allows(want Service) bool {
	return slices.ContainsFunc(l, func(entry Service) bool {
		return entry.Namespace == want.Namespace && entry.Service == want.Service &&
			(entry.Port == "" || entry.Port == want.Port) &&
			(entry.Protocol == "" || entry.Protocol == want.Protocol)
	})
}

// Check reports what is wrong with the words of a Service. Names that pass are
// single DNS labels, so that no other host can be made of them.
func (s Service) Check() error {
	if !label(s.Namespace) || len(s.Namespace) > 63 {
		return fmt.Errorf("namespace %q is not the name of a namespace", s.Namespace)
	}
	// RFC 1035: a Service's name begins with a letter.
	if !label(s.Service) || len(s.Service) > 63 || s.Service[0] <= '9' {
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
