package agentaddon

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Access is a role that users and groups of the hub have on each cluster.
type Access struct {
	Users       []string `json:"users"`
	Groups      []string `json:"groups"`
	ClusterRole string   `json:"clusterRole"`
}

// ParseAccess reads Access from JSON; empty text means nobody. A name that means something to a
// cluster's control plane is an error: agents do not assert it, and a binding of such a group, as
// system:authenticated, would be for the cluster's own users.
func ParseAccess(text string) (Access, error) {
	var a Access
	if text == "" {
		return a, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		return Access{}, err
	}
	if problems := content.IsPathSegmentName(a.ClusterRole); a.ClusterRole == "" || len(problems) > 0 {
		return Access{}, fmt.Errorf("%q is not the name of a ClusterRole", a.ClusterRole)
	}
	for _, name := range slices.Concat(a.Users, a.Groups) {
		if name == "" {
			return Access{}, errors.New("a user or group has no name")
		}
		if identity.IsReserved(identity.OnManagedCluster(name)) || strings.HasPrefix(name, identity.HubUserPrefix) {
			return Access{}, fmt.Errorf("%q means something else on a managed cluster: name users and groups that are the hub's own, or its service accounts", name)
		}
	}
	return a, nil
}

// bind binds the role to the names that users and groups have on the cluster.
func (a Access) bind(v *values) {
	if len(a.Users)+len(a.Groups) == 0 {
		return
	}
	v.Access = &access{ClusterRole: a.ClusterRole}
	add := func(kind string, names []string) {
		for _, name := range names {
			if !v.OnHub { // where everybody is who they are
				name = identity.OnManagedCluster(name)
			}
			v.Access.Subjects = append(v.Access.Subjects, subject{kind, name})
		}
	}
	add(rbacv1.UserKind, a.Users)
	add(rbacv1.GroupKind, a.Groups)
}
