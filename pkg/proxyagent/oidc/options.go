package oidc

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	upstream "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	cliflag "k8s.io/component-base/cli/flag"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
)

// Options are the flags. Without an issuer there is no provider.
type Options struct {
	IssuerURL, ClientID           string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	// ReservedNamePrefixes are what no user's name and group may begin with.
	ReservedNamePrefixes []string
	// CAFile has the CA of the provider; empty means the system's CAs.
	CAFile         string
	SigningAlgs    []string
	RequiredClaims map[string]string
}

// NewOptions are the defaults.
func NewOptions() *Options {
	return &Options{UsernameClaim: "sub", ReservedNamePrefixes: []string{"system:"}, SigningAlgs: []string{"RS256"}}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.IssuerURL, "oidc-issuer-url", o.IssuerURL, "https URL of an OpenID Connect provider whose users are impersonated; empty means none")
	fs.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "client that tokens must be for; must be set with --oidc-issuer-url")
	fs.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim with the user's name")
	fs.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix, "prefix of users' names; empty is the issuer and # (or nothing, if the claim is email), - is nothing")
	fs.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "claim with the user's groups; empty means no groups")
	fs.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "prefix of groups")
	fs.StringSliceVar(&o.ReservedNamePrefixes, "oidc-reserved-name-prefixes", o.ReservedNamePrefixes, "refuse a user whose name, or a group of whom, begins with one of these prefixes")
	fs.StringVar(&o.CAFile, "oidc-ca-file", o.CAFile, "file with the provider's CA, read again when it changes; empty means the system's CAs")
	fs.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "algorithms that tokens may be signed with")
	fs.Var(cliflag.NewMapStringStringNoSplit(&o.RequiredClaims), "oidc-required-claim", "claim=value that tokens must have; may be repeated")
}

// Validate reports all flags that are wrong, and what is allowed.
func (o *Options) Validate() error {
	if o.IssuerURL == "" && o.ClientID == "" {
		return nil
	}
	var errs flags.Errors
	if u, err := url.Parse(o.IssuerURL); err != nil || u.Scheme != "https" || u.Host == "" {
		errs.Refuse("oidc-issuer-url", o.IssuerURL, "it must be an https URL, with --oidc-client-id")
	}
	errs.Required("oidc-client-id", o.ClientID, "the client that tokens are for; it must be set together with --oidc-issuer-url")
	errs.Required("oidc-username-claim", o.UsernameClaim, "the claim with the user's name")
	if o.GroupsPrefix != "" {
		errs.Required("oidc-groups-claim", o.GroupsClaim, "the claim with the user's groups, with --oidc-groups-prefix")
	}
	if slices.Contains(o.ReservedNamePrefixes, "") {
		errs.Refuse("oidc-reserved-name-prefixes", o.ReservedNamePrefixes, "it must not contain an empty prefix: every name begins with it")
	}
	for _, algorithm := range o.SigningAlgs {
		if !slices.Contains(upstream.AllValidSigningAlgorithms(), algorithm) {
			errs.Refuse("oidc-signing-algs", algorithm, "it must be one of %s", strings.Join(upstream.AllValidSigningAlgorithms(), ", "))
		}
	}
	return errs.Err()
}

// authenticator is the configuration as the kube-apiserver writes it.
func (o *Options) authenticator() apiserver.JWTAuthenticator {
	config := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: new(o.usernamePrefix())},
		},
	}
	if o.GroupsClaim != "" {
		config.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	}
	for claim, value := range o.RequiredClaims {
		config.ClaimValidationRules = append(config.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	for _, prefix := range o.ReservedNamePrefixes {
		literal := strconv.QuoteToASCII(prefix)
		config.UserValidationRules = append(config.UserValidationRules,
			apiserver.UserValidationRule{Expression: "!user.username.startsWith(" + literal + ")", Message: "the user's name begins with " + literal + ", which is reserved"},
			apiserver.UserValidationRule{Expression: "user.groups.all(group, !group.startsWith(" + literal + "))", Message: "a group begins with " + literal + ", which is reserved"},
		)
	}
	return config
}

// usernamePrefix is the kube-apiserver's rule: names of two providers must not be
// the same by chance.
func (o *Options) usernamePrefix() string {
	switch {
	case o.UsernamePrefix == "-":
		return ""
	case o.UsernamePrefix == "" && o.UsernameClaim != "email":
		return o.IssuerURL + "#"
	}
	return o.UsernamePrefix
}
