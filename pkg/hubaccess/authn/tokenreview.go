package authn

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// errNoAnswer, outage.ErrUnreachable and outage.ErrNotForUs are the errors of the review of a token
// that may be one of the hub's: it is never sent to a cluster. Errors are not cached.
var errNoAnswer = errors.New("the hub's kube-apiserver could not check the token")

// unknownToken is the error of a token for which every authenticator of a
// kube-apiserver answered, and none has a user.
const unknownToken = "invalid bearer token"

// foreign lists the errors of authenticators that mean: no key of this hub made
// the token's signature. A kube-apiserver says unknownToken of every token that
// is not good, whatever the reason, and adds the errors of its authenticators
// (AuthorizeClientBearerToken in k8s.io/apiserver/pkg/server/config.go puts an
// authenticator of its own before the configured ones). So unknownToken alone
// means that the hub does not know a token, and in company it means nothing.
var foreign = []string{
	unknownToken,
	// Service account tokens of another cluster with the same issuer. Newer
	// versions of Kubernetes choose the key by its ID, older ones try all.
	"invalid signature, no keys found",
	"go-jose/go-jose: error in cryptographic primitive",
	"square/go-jose: error in cryptographic primitive",
}

// refused are in the errors about tokens that the hub knows and does not take:
// those of package serviceaccount of k8s.io/kubernetes, and of OIDC.
var refused = []string{
	"token has expired", "is not valid yet", "issued in the future", "has been invalidated", "has been deleted", "serviceaccounts \"", "does not match claim",
	"has been marked invalid", "target audiences",
	"oidc: token is expired", "(not before) time", "oidc: expected audience", "oidc: required claim", "oidc: email not verified",
	"validation expression",
}

// bootstrapToken is the form of tokens by which machines join a cluster. A
// kube-apiserver that has just started may not have read its own yet, and says
// of them that it does not know them.
var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// reviewer asks the hub about tokens.
type reviewer struct {
	hub kubernetes.Interface
	// audiences are what a token must be for, beside identity.ProxyAPIAudience; none means the
	// audience of the hub's kube-apiserver.
	audiences []string
}

// AuthenticateToken returns a user, or false for a token that the hub does not
// know, or errNoAnswer, outage.ErrUnreachable or outage.ErrNotForUs.
func (v *reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, outage.ReviewTimeout)
	defer cancel()
	audiences := v.audiences
	if isForProxyAPI(token) {
		audiences = append(slices.Clone(audiences), identity.ProxyAPIAudience)
	}
	status, err := v.review(ctx, token, audiences)
	if err != nil {
		return nil, false, err
	}
	forUs := len(audiences) == 0 || slices.ContainsFunc(status.Audiences, func(a string) bool { return slices.Contains(audiences, a) })
	if !status.Authenticated && len(audiences) > 0 {
		// Authenticators that know no audiences (OIDC, static tokens) are not
		// asked if a review is for others than the kube-apiserver's own, and
		// the answer is as if they did not know the token.
		if status, err = v.review(ctx, token, nil); err != nil {
			return nil, false, err
		}
		forUs = len(v.audiences) == 0
	}
	if status.Authenticated && !forUs {
		return nil, false, outage.ErrNotForUs
	}
	if status.Authenticated {
		return &authenticator.Response{User: userOfReview(status.User)}, true, nil
	}
	if bootstrapToken.MatchString(token) {
		return nil, false, outage.ErrNotForUs
	}
	return nil, false, nil
}

// isForProxyAPI reports whether a service account's token says that it is for the proxy API. It
// is not verified: it decides for which audiences the hub is asked, and nothing else. A review
// for several audiences would do without, but not with the kube-apiserver's own among them, of
// which only the kube-apiserver knows the name.
func isForProxyAPI(token string) bool {
	var claims struct {
		Audiences []string `json:"aud"`
	}
	parts := strings.Split(token, ".")
	return len(parts) == 3 && decodePart(parts[1], &claims) && slices.Contains(claims.Audiences, identity.ProxyAPIAudience)
}

// review asks once. The error is nil if the hub has a user for the token, or
// does not know it.
func (v *reviewer) review(ctx context.Context, token string, audiences []string) (*authenticationv1.TokenReviewStatus, error) {
	// With --v=8 client-go logs bodies, the token in this one.
	unlogged := klog.NewContext(ctx, logr.Discard())
	review, err := v.hub.AuthenticationV1().TokenReviews().Create(unlogged, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		if outage.IsUnreachable(err) {
			return nil, outage.ErrUnreachable
		}
		klog.FromContext(ctx).Error(err, "The hub refused to review a token")
		return nil, errNoAnswer
	}
	if review.Status.Authenticated {
		return &review.Status, nil
	}
	return &review.Status, whyNot(ctx, review.Status.Error)
}

// whyNot returns nil if the error of a TokenReview says that the hub does not
// know the token.
func whyNot(ctx context.Context, message string) error {
	switch {
	case isForeign(message):
		return nil
	case slices.ContainsFunc(refused, func(phrase string) bool { return strings.Contains(message, phrase) }):
		return outage.ErrNotForUs
	}
	klog.FromContext(ctx).Info("The hub did not decide about a token", "message", message)
	return errNoAnswer
}

// isForeign reports whether a message is one of foreign, or a list of nothing
// else as utilerrors.Aggregate writes it, with unknownToken in it.
func isForeign(message string) bool {
	if message == unknownToken {
		return true
	}
	rest, ok := strings.CutPrefix(message, "["+unknownToken+", ")
	if !ok {
		return false
	}
	for {
		i := slices.IndexFunc(foreign, func(phrase string) bool { return strings.HasPrefix(rest, phrase) })
		if i < 0 {
			return false
		}
		rest = rest[len(foreign[i]):]
		if rest == "]" {
			return true
		}
		if rest, ok = strings.CutPrefix(rest, ", "); !ok {
			return false
		}
	}
}

func userOfReview(u authenticationv1.UserInfo) user.Info {
	extra := map[string][]string{}
	for key, values := range u.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}
