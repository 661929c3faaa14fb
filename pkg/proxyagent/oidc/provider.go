package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	upstream "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
)

const (
	// interval is how often the CA's file is read.
	interval = 10 * time.Second
	// findTimeout is how long the provider may take to be found with a new CA until the next
	// attempt, and findCheck how often it is looked whether it was.
	findTimeout = 30 * time.Second
	findCheck   = 50 * time.Millisecond
)

// Provider knows the users of one OpenID Connect provider. It may be used by
// many goroutines. No user is known before Run.
type Provider struct {
	options *Options
	current atomic.Pointer[authenticator.Token]
	request authenticator.Request
}

// New makes a provider; options must be valid.
func New(options *Options) *Provider {
	p := &Provider{options: options}
	p.request = union.New(bearertoken.New(p), websocket.NewProtocolAuthenticator(p))
	return p
}

// AuthenticateRequest says who a request is from, by its token, which is taken
// off the request if it is good. It implements authenticator.Request.
func (p *Provider) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return p.request.AuthenticateRequest(r)
}

// AuthenticateToken implements authenticator.Token. A token of another issuer is
// no error.
func (p *Provider) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if now := p.current.Load(); now != nil {
		return (*now).AuthenticateToken(ctx, token)
	}
	return nil, false, nil
}

// ca is a CAContentProvider of the kube-apiserver's authenticator.
type ca []byte

func (c ca) CurrentCABundleContent() []byte { return c }

// Run keeps the provider until ctx is done. A CA that cannot be read, or with which the
// provider is not found, leaves the last good one in force.
func (p *Provider) Run(ctx context.Context) error {
	var before []byte
	stop := func() {}
	defer func() { stop() }()
	return filewatch.Loop{
		Interval: interval,
		Load: func() (changed bool, err error) {
			content, err := p.readCA()
			if err != nil || p.current.Load() != nil && bytes.Equal(content, before) {
				return false, err
			}
			next, err := p.use(ctx, content)
			if err != nil {
				return false, err
			}
			// A token may be in the middle of a check: the old one goes on for a
			// while after it was replaced.
			time.AfterFunc(interval, stop)
			stop, before = next, content
			return true, nil
		},
		Failed: func(err error) { klog.FromContext(ctx).Error(err, "Preparing the OpenID Connect provider") },
	}.Run(ctx)
}

func (p *Provider) readCA() ([]byte, error) {
	if p.options.CAFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(p.options.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of the OpenID Connect provider: %w", err)
	}
	if len(content) == 0 {
		return nil, errors.New("the CA of the OpenID Connect provider is empty")
	}
	return content, nil
}

// use puts a new authenticator into use, until it is stopped.
func (p *Provider) use(ctx context.Context, content []byte) (stop func(), err error) {
	options := upstream.Options{JWTAuthenticator: p.options.authenticator(), SupportedSigningAlgs: p.options.SigningAlgs}
	if content != nil {
		options.CAContentProvider = ca(content)
	}
	ctx, stop = context.WithCancel(ctx)
	made, err := upstream.New(ctx, options)
	if err != nil {
		stop()
		return nil, fmt.Errorf("preparing the authenticator of %q: %w", p.options.IssuerURL, err)
	}
	if p.current.Load() != nil {
		if err := found(ctx, made); err != nil {
			stop()
			return nil, fmt.Errorf("finding %q with its new CA: %w", p.options.IssuerURL, err)
		}
	}
	token := authenticator.Token(made)
	p.current.Store(&token)
	return stop, nil
}

// found waits until an authenticator has found its provider. It knows nobody before, and the
// one in use has the provider's keys.
func found(ctx context.Context, made upstream.AuthenticatorTokenWithHealthCheck) error {
	var reason error
	if utilwait.PollUntilContextTimeout(ctx, findCheck, findTimeout, true, func(context.Context) (bool, error) {
		reason = made.HealthCheck()
		return reason == nil, nil
	}) == nil {
		return nil
	}
	return reason
}
