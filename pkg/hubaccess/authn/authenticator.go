package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/fairqueue"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// tokenTTL is how long the hub's answer about a token is believed.
	tokenTTL = 5 * time.Second
	// configNamespace and configName are where a kube-apiserver publishes whose
	// client certificates it believes.
	configNamespace = "kube-system"
	configName      = "extension-apiserver-authentication"
)

// Authenticator finds out who sends a request, by the hub's own means: client
// certificates, the hub's front proxy, and TokenReview. Its methods are safe for
// concurrent use.
type Authenticator struct {
	// certificates are those of the hub's users and of its front proxy.
	certificates authenticator.Request
	tokens       authenticator.Request
	limiter      *rateLimiter
	// cas are those that certificates are verified with.
	cas []dynamiccertificates.CAContentProvider
	// controllers keep the certificates' CAs up to date.
	controllers []dynamiccertificates.ControllerRunner
}

// NewAuthenticator does no I/O. A token of the hub must be for one of audiences, or for
// identity.ProxyAPIAudience; none means the audience of the hub's kube-apiserver.
func NewAuthenticator(hub kubernetes.Interface, audiences []string, outage *outage.Grace) (*Authenticator, error) {
	ca := func(purpose, key string) (*dynamiccertificates.ConfigMapCAController, error) {
		return dynamiccertificates.NewDynamicCAFromConfigMapController(purpose, configNamespace, configName, key, hub)
	}
	users, err := ca("client-ca", "client-ca-file")
	if err != nil {
		return nil, fmt.Errorf("preparing the hub's client CA: %w", err)
	}
	proxies, err := ca("front-proxy-ca", "requestheader-client-ca-file")
	if err != nil {
		return nil, fmt.Errorf("preparing the hub's front proxy CA: %w", err)
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(configName, configNamespace, hub,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	certificates, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		ClientCertificateCAContentProvider: users,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   proxies,
			UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
			UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
			GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
			AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
		},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("preparing authentication by certificates: %w", err)
	}
	return &Authenticator{
		certificates: certificates,
		tokens:       newTokens(hub, audiences, outage),
		limiter:      newRateLimiter(),
		cas:          []dynamiccertificates.CAContentProvider{users, proxies},
		controllers:  []dynamiccertificates.ControllerRunner{users, proxies, headers},
	}, nil
}

// newTokens reads tokens from requests and asks the hub about them.
func newTokens(hub kubernetes.Interface, audiences []string, outage *outage.Grace) authenticator.Request {
	reviewed := outage.Tokens(cache.New(&reviewer{hub: hub, audiences: audiences}, false, tokenTTL, tokenTTL))
	return group.NewAuthenticatedGroupAdder(union.New(bearertoken.New(reviewed), websocket.NewProtocolAuthenticator(reviewed)))
}

// Run keeps up with the hub's CAs until ctx is done. A hub that publishes none
// has no users with certificates.
func (a *Authenticator) Run(ctx context.Context) error {
	done := make(chan struct{})
	for _, controller := range a.controllers {
		if err := controller.RunOnce(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The hub's CA of client certificates cannot be read yet; until then such certificates are refused")
		}
		go func() {
			controller.Run(ctx, 1)
			done <- struct{}{}
		}()
	}
	for range a.controllers {
		<-done
	}
	return nil
}

// Authenticate finds out who sends a request. A nil user means that the hub does not
// know the caller, whose credential may be one of a managed cluster's: of that which the request
// is for, if it is for one. The string names an unverified credential for the methods that take one,
// without giving it away. The error is a *status.Error.
func (a *Authenticator) Authenticate(r *http.Request, cluster string) (user.Info, string, error) {
	return a.authenticate(r, cluster, false)
}

// AuthenticateAgain is Authenticate for a request whose credential the hub knew before, and
// that goes on. Limits of unverified credentials are not for it: a flood of those, from the
// same address or of the same class, must not hide that the hub knows it no more.
func (a *Authenticator) AuthenticateAgain(r *http.Request) (user.Info, string, error) {
	return a.authenticate(r, "", true)
}

func (a *Authenticator) authenticate(r *http.Request, cluster string, again bool) (user.Info, string, error) {
	if len(r.Header["Authorization"]) > 1 {
		return nil, "", status.New(http.StatusUnauthorized, "the request has more than one Authorization header: send one")
	}
	if oddBearer(r.Header.Get("Authorization")) {
		return nil, "", status.New(http.StatusUnauthorized, "the Authorization header must be \"Bearer <token>\", with one space: send it like that")
	}
	presented := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if presented {
		if answer, ok, err := a.certificates.AuthenticateRequest(r); ok && err == nil {
			return answer.User, "", nil
		}
	}
	credential := credentialOf(r)
	if presented && credential == "" {
		if slices.ContainsFunc(a.cas, unread) {
			return nil, "", status.New(http.StatusServiceUnavailable, "the client certificate cannot be verified, because the proxy API has not read the hub's CAs (ConfigMap "+configNamespace+"/"+configName+") yet: try again, or use a token")
		}
		return nil, "", status.New(http.StatusUnauthorized, "the hub does not know the client certificate: use one of the hub's kubeconfig, or a token")
	}
	class := classOf(bearerOf(r))
	if !again && !a.limiter.admit(credential, cluster, class, ClientAddress(r)) {
		a.limiter.holdBack(r.Context())
		return nil, "", status.New(http.StatusTooManyRequests, "too many requests with unknown credentials come from this address: check the token, and try again")
	}
	if credential == "" {
		return nil, "", nil
	}
	if authorization := r.Header.Get("Authorization"); authorization != "" && !isBearer(authorization) {
		// The hub can be asked about bearer tokens only.
		return nil, "", status.New(http.StatusUnauthorized, "the Authorization header has no bearer token: send \"Bearer <token>\"")
	}
	ask := func() (*authenticator.Response, bool, error) { return a.ask(r, credential, cluster, class) }
	if again {
		ask = func() (*authenticator.Response, bool, error) { return a.tokens.AuthenticateRequest(r) }
	}
	answer, ok, err := ask()
	switch {
	case ok && err == nil:
		a.limiter.verified(credential, class)
		return answer.User, credential, nil
	case err == nil || err.Error() == unknownToken:
		return nil, credential, nil
	}
	return nil, "", undecided(err)
}

// unread reports whether a CA has not been read from the hub: the proxy API has just
// started, or the hub publishes none.
func unread(ca dynamiccertificates.CAContentProvider) bool {
	return len(ca.CurrentCABundleContent()) == 0
}

// AcceptedBy remembers that a cluster accepted a credential that the hub does not know:
// it is not limited there any more.
func (a *Authenticator) AcceptedBy(cluster, credential string) { a.limiter.trust(credential, cluster) }

// RefusedBy forgets what AcceptedBy remembered.
func (a *Authenticator) RefusedBy(cluster, credential string) { a.limiter.forget(credential, cluster) }

// WasAcceptedBy reports whether a cluster accepted a credential when it was last asked.
func (a *Authenticator) WasAcceptedBy(cluster, credential string) bool {
	return a.limiter.goodAt(credential, cluster)
}

// undecided is what a caller is told of an error of ask. It never
// says that the credential is not the hub's.
func undecided(err error) error {
	switch {
	case errors.Is(err, fairqueue.ErrFull), errors.Is(err, context.DeadlineExceeded):
		return status.New(http.StatusServiceUnavailable, "the hub's kube-apiserver is slow to check tokens: try again")
	case errors.Is(err, outage.ErrUnreachable):
		return status.New(http.StatusServiceUnavailable, outage.ErrUnreachable.Error()+" about the token: try again")
	case errors.Is(err, errNoAnswer):
		return status.New(http.StatusServiceUnavailable, errNoAnswer.Error()+": try again")
	case errors.Is(err, outage.ErrNotForUs):
		return status.New(http.StatusUnauthorized, outage.ErrNotForUs.Error()+": get a new one")
	}
	return status.New(http.StatusUnauthorized, "the credential in the request cannot be read: "+err.Error())
}

// ask asks the hub. Requests with unverified credentials take turns.
func (a *Authenticator) ask(r *http.Request, credential, cluster, class string) (*authenticator.Response, bool, error) {
	if !a.limiter.knows(credential, cluster) {
		release, err := a.limiter.wait(r.Context(), class, ClientAddress(r))
		if err != nil {
			return nil, false, err
		}
		defer release()
	}
	return a.tokens.AuthenticateRequest(r)
}

// CheckServiceLogin returns a *status.Error if login, which a Service is to get as
// Authorization, may be a credential of the hub. The hub knows bearer tokens only, and
// is asked about these as about those in Authorization: "does not know" is all that
// lets one through. It is not asked about other schemes, whose secrets are none of the
// hub's business.
func (a *Authenticator) CheckServiceLogin(r *http.Request, login string) error {
	if !isBearer(login) {
		return nil
	}
	scheme, token, _ := strings.Cut(login, " ")
	if !strings.EqualFold(scheme, "bearer") || oddBearer(login) {
		return status.New(http.StatusBadRequest, "the "+agentapi.ServiceAuthorization+" header must be \"Bearer <token>\", with one space, or have another scheme: send it like that")
	}
	asked := (&http.Request{Header: http.Header{"Authorization": {login}}, URL: r.URL, RemoteAddr: r.RemoteAddr}).WithContext(r.Context())
	_, known, err := a.ask(asked, credentialOf(asked), "", classOf(token))
	switch {
	case known && err == nil:
		return status.New(http.StatusForbidden, "the token in "+agentapi.ServiceAuthorization+" is one of the hub's, which do not leave it: send one of the Service's own")
	case err == nil || err.Error() == unknownToken:
		return nil
	}
	return undecided(err)
}

// bearerOf is a request's bearer token, or empty.
func bearerOf(r *http.Request) string {
	if header := strings.TrimSpace(r.Header.Get("Authorization")); isBearer(header) {
		return strings.TrimSpace(header[len("bearer"):])
	}
	return ""
}

// oddBearer reports whether a header holds a bearer token in a spelling that
// k8s.io/apiserver does not read: it would not ask the hub about the token, and
// one of the hub's own would be passed on.
func oddBearer(header string) bool {
	header = strings.TrimSpace(header)
	if !isBearer(header) {
		return false
	}
	parts := strings.Split(header, " ")
	return len(parts) != 2 || parts[1] == "" || strings.Contains(header, "\t")
}

func isBearer(header string) bool {
	header = strings.TrimSpace(header)
	return len(header) >= len("bearer") && strings.EqualFold(header[:len("bearer")], "bearer")
}

// credentialOf names the credential in a request's headers without giving it
// away; empty if there is none.
func credentialOf(r *http.Request) string {
	values := slices.Clone(r.Header["Authorization"])
	for _, line := range r.Header["Sec-Websocket-Protocol"] {
		if strings.Contains(line, agentapi.WebSocketToken) {
			values = append(values, line)
		}
	}
	if len(values) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(values, "\n")))
	return string(sum[:])
}

// ClientAddress is the host of a request's RemoteAddr.
func ClientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// ClientSource is what one client has of addresses: ClientAddress, or the /64 that an IPv6
// address is in.
func ClientSource(r *http.Request) string {
	address := ClientAddress(r)
	if source, _ := sourceOf(address); source.Addr().Is6() {
		return source.String()
	}
	return address
}
