package hubaccess

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// AnnotationPrefix begins the annotations of audit events that are the addon's own.
const AnnotationPrefix = "clusterproxy.open-cluster-management.io/"

// KeyOfQuestion names a question about a permission.
func KeyOfQuestion(a authorizer.Attributes) [sha256.Size]byte {
	of := KeyOf(a.GetUser())
	sum := sha256.New()
	fmt.Fprintf(sum, "permission %x %q %q %q %q %q %q %q", of, a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName())
	if !a.IsResourceRequest() {
		fmt.Fprintf(sum, " %q", a.GetPath())
	}
	// The hub may allow what is selected, and nothing else.
	if selected, err := a.GetFieldSelector(); err != nil || len(selected) > 0 {
		fmt.Fprintf(sum, " fields %q %t", selected, err != nil)
	}
	if selected, err := a.GetLabelSelector(); err != nil || len(selected) > 0 {
		fmt.Fprintf(sum, " labels %q %t", fmt.Sprint(selected), err != nil)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// KeyOf tells users apart, by everything that an authorizer or a cluster may decide by.
func KeyOf(u user.Info) [sha256.Size]byte {
	text, err := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()}) // sorts maps
	if err != nil {
		panic(err) // strings only
	}
	return sha256.Sum256(text)
}
