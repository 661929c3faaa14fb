package proxyapi

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
)

const (
	// tokenTTL is how long the hub's answer about a token is believed.
	tokenTTL = 5 * time.Second
	// configNamespace and configName are where a kube-apiserver publishes whose
	// client certificates it believes.
	configNamespace = "kube-system"
	configName      = "extension-apiserver-authentication"
)

// callers finds out who sends a request, by the hub's own means.
type callers struct {
	// certificates are those of the hub's users and of its front proxy.
	certificates authenticator.Request
	tokens       authenticator.Request
	strangers    *strangers
	// controllers keep the certificates' CAs up to date.
	controllers []dynamiccertificates.ControllerRunner
}

// newCallers does no I/O.
func newCallers(hub kubernetes.Interface, audiences []string, outage *outage) (*callers, error) {
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
	return &callers{
		certificates: certificates,
		tokens:       newTokens(hub, audiences, outage),
		strangers:    newStrangers(),
		controllers:  []dynamiccertificates.ControllerRunner{users, proxies, headers},
	}, nil
}

// newTokens reads tokens from requests and asks the hub about them.
func newTokens(hub kubernetes.Interface, audiences []string, outage *outage) authenticator.Request {
	reviewed := outage.tokens(cache.New(&reviewer{hub: hub, audiences: audiences}, false, tokenTTL, tokenTTL))
	return group.NewAuthenticatedGroupAdder(union.New(bearertoken.New(reviewed), websocket.NewProtocolAuthenticator(reviewed)))
}

// run keeps up with the hub's CAs until ctx is done. A hub that publishes none
// has no users with certificates.
func (c *callers) run(ctx context.Context) error {
	done := make(chan struct{})
	for _, controller := range c.controllers {
		if err := controller.RunOnce(ctx); err != nil {
			klog.FromContext(ctx).Info("The hub's CA of client certificates cannot be read yet; until then such certificates are refused", "err", err.Error())
		}
		go func() {
			controller.Run(ctx, 1)
			done <- struct{}{}
		}()
	}
	for range c.controllers {
		<-done
	}
	return nil
}

// authenticate finds out who sends a request. A nil user means that the hub does
// not know him: his credential may be one of the managed cluster's. The error is
// for statusFor.
func (c *callers) authenticate(r *http.Request) (user.Info, string, error) {
	if len(r.Header["Authorization"]) > 1 {
		return nil, "", &problem{http.StatusUnauthorized, "the request has more than one Authorization header: send one"}
	}
	if oddBearer(r.Header.Get("Authorization")) {
		return nil, "", &problem{http.StatusUnauthorized, "the Authorization header must be \"Bearer <token>\", with one space: send it like that"}
	}
	presented := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if presented {
		if answer, ok, err := c.certificates.AuthenticateRequest(r); ok && err == nil {
			return answer.User, "", nil
		}
	}
	credential := credentialOf(r)
	if presented && credential == "" {
		return nil, "", &problem{http.StatusUnauthorized, "the hub does not know the client certificate: use one of the hub's kubeconfig, or a token"}
	}
	class := classOf(bearerOf(r))
	if !c.strangers.admit(credential, class, addressOf(r)) {
		c.strangers.holdBack(r.Context())
		return nil, "", &problem{http.StatusTooManyRequests, "too many requests with unknown credentials come from this address: check the token, and try again"}
	}
	if credential == "" {
		return nil, "", nil
	}
	if authorization := r.Header.Get("Authorization"); authorization != "" && !isBearer(authorization) {
		// The hub can be asked about bearer tokens only.
		return nil, "", &problem{http.StatusUnauthorized, "the Authorization header has no bearer token: send \"Bearer <token>\""}
	}
	answer, ok, err := c.ask(r, credential, class)
	switch {
	case ok && err == nil:
		c.strangers.verified(credential, class)
		return answer.User, credential, nil
	case err == nil || err.Error() == unknownToken:
		return nil, credential, nil
	}
	return nil, "", undecided(err)
}

// undecided is what a caller is told of an error of ask. Whatever it is, it does
// not say that the credential is not the hub's.
func undecided(err error) error {
	switch {
	case errors.Is(err, errTooManyWait), errors.Is(err, context.DeadlineExceeded):
		return &problem{http.StatusServiceUnavailable, "the hub's kube-apiserver is slow to check tokens: try again"}
	case errors.Is(err, errUnreachable):
		return &problem{http.StatusServiceUnavailable, errUnreachable.Error() + " about the token: try again"}
	case errors.Is(err, errNoAnswer):
		return &problem{http.StatusServiceUnavailable, errNoAnswer.Error() + ": try again"}
	case errors.Is(err, errNotForUs):
		return &problem{http.StatusUnauthorized, errNotForUs.Error() + ": get a new one"}
	}
	return &problem{http.StatusUnauthorized, "the credential in the request cannot be read: " + err.Error()}
}

// ask asks the hub. Requests with unverified credentials take turns.
func (c *callers) ask(r *http.Request, credential, class string) (*authenticator.Response, bool, error) {
	if !c.strangers.knows(credential) {
		release, err := c.strangers.turn(r.Context(), class, addressOf(r))
		if err != nil {
			return nil, false, err
		}
		defer release()
	}
	return c.tokens.AuthenticateRequest(r)
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

func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
