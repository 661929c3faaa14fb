package apigroup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	whoAmITimeout = 10 * time.Second
	maxAnswer     = 1 << 20
	ReviewPath    = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// identityStorage says who the caller is on a cluster.
type identityStorage struct{ *ClusterAPI }

var _ rest.Getter = &identityStorage{}

func (s *identityStorage) New() runtime.Object { return &v1alpha1.ClusterIdentity{} }
func (s *identityStorage) Destroy()            {}

// Get asks the cluster, as the caller.
func (s *identityStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := s.started(); err != nil {
		return nil, err
	}
	u := scope.UserOf(ctx)
	if s.Clusters.Served(name) != nil || !s.Authorizer.MayReach(ctx, u, mayGet, name) {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource(), name)
	}
	if err := s.permitted(ctx, name, u); err != nil {
		return nil, err
	}
	there, err := s.whoAmI(ctx, name, u)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.ClusterIdentity{ObjectMeta: metav1.ObjectMeta{Name: name}, Hub: userInfo(u), Cluster: *there}, nil
}

func userInfo(u user.Info) v1alpha1.UserInfo {
	return v1alpha1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}

// permitted asks the AccessPolicies about what whoAmI is going to send.
func (a *ClusterAPI) permitted(ctx context.Context, cluster string, u user.Info) error {
	target, err := route.ParseIn(cluster, ReviewPath)
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: ReviewPath}, RequestURI: ReviewPath}
	rs, err := scope.NewClusterScope(r, target, v1alpha1.GroupVersion, err)
	if err != nil {
		return a.statusError(cluster, err)
	}
	rs.Requester, rs.User = scope.Of(ctx).Requester, u
	return a.Permit(ctx, rs)
}

// whoAmI asks a cluster's kube-apiserver who u is there. The error is an
// APIStatus.
func (a *ClusterAPI) whoAmI(ctx context.Context, cluster string, u user.Info) (*v1alpha1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, whoAmITimeout)
	defer cancel()
	body, err := json.Marshal(authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}})
	if err != nil {
		return nil, a.statusError(cluster, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, ReviewPath, bytes.NewReader(body))
	if err != nil {
		return nil, a.statusError(cluster, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	resp, err := a.Agents.RoundTrip(r, agentclient.Target{Cluster: cluster}, agentclient.Identity{User: u})
	if err != nil {
		return nil, a.statusError(cluster, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, a.statusError(cluster, err)
	}
	return parseReview(cluster, resp.StatusCode, answer)
}

func parseReview(cluster string, code int, answer []byte) (*v1alpha1.UserInfo, error) {
	if code != http.StatusCreated {
		var said metav1.Status
		if json.Unmarshal(answer, &said) != nil || said.Kind != "Status" {
			said = status.New(http.StatusBadGateway, fmt.Sprintf("cluster %q answered a SelfSubjectReview with status %d", cluster, code)).ErrStatus
		}
		// Its words, but the code that was seen: others are no codes of HTTP.
		said.Status = metav1.StatusFailure
		if said.Code = int32(code); code < 400 {
			said.Code = http.StatusBadGateway
		}
		return nil, &apierrors.StatusError{ErrStatus: said}
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, status.New(http.StatusBadGateway, fmt.Sprintf("cluster %q answered a SelfSubjectReview with something else", cluster))
	}
	there := review.Status.UserInfo
	info := &v1alpha1.UserInfo{Username: there.Username, UID: there.UID, Groups: there.Groups}
	for key, values := range there.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[key] = values
	}
	return info, nil
}

func (a *ClusterAPI) statusError(cluster string, err error) error {
	return &apierrors.StatusError{ErrStatus: scope.StatusFor(err, cluster, a.Clusters.AwaySince(cluster))}
}
