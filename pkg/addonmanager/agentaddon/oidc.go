package agentaddon

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// oidcFlag is a customized variable that becomes a flag of the agent's, as in
// upstream. check may be nil.
func oidcFlag(name string, check func(value string) error) func(v *values, value string) error {
	return func(v *values, value string) error {
		if strings.TrimSpace(value) != value || value == "" {
			return errors.New("must not be empty nor have spaces around it")
		}
		if check != nil {
			if err := check(value); err != nil {
				return err
			}
		}
		v.Args = append(v.Args, "--oidc-"+name+"="+value)
		return nil
	}
}

func isHTTPS(value string) error {
	if u, err := url.Parse(value); err != nil || u.Scheme != "https" || u.Host == "" {
		return errors.New("must be an https URL")
	}
	return nil
}

func isList(value string) error {
	for element := range strings.SplitSeq(value, ",") {
		if element == "" || strings.TrimSpace(element) != element {
			return errors.New("must be a list with commas and no spaces, and no element may be empty")
		}
	}
	return nil
}

func setRequiredClaims(v *values, value string) error {
	var claims map[string]string
	if err := json.Unmarshal([]byte(value), &claims); err != nil || len(claims) == 0 {
		return errors.New("must be a JSON object of strings")
	}
	for _, claim := range slices.Sorted(maps.Keys(claims)) {
		if claim == "" || strings.ContainsAny(claim, "= ") {
			return errors.New("must name claims without spaces and =")
		}
		v.Args = append(v.Args, "--oidc-required-claim="+claim+"="+claims[claim])
	}
	return nil
}

func setOIDCCA(v *values, value string) error {
	if len(validation.IsDNS1123Subdomain(value)) > 0 {
		return errors.New("must be the name of a ConfigMap in the agent's namespace, with the CA as ca.crt")
	}
	v.OIDCCA = value
	v.Args = append(v.Args, "--oidc-ca-file=/etc/oidc-ca/ca.crt")
	return nil
}

// setIssuer also opens the agent's NetworkPolicy for an issuer on a port of its
// own.
func setIssuer(v *values, value string) error {
	if err := oidcFlag("issuer-url", isHTTPS)(v, value); err != nil {
		return err
	}
	if u, err := url.Parse(value); err == nil && u.Port() != "" {
		v.NetworkPolicy.Peers = append(v.NetworkPolicy.Peers, peer(u.Hostname(), portOf(u)))
	}
	return nil
}

// checkOIDC finds what the agent would refuse to start with.
func checkOIDC(args []string) error {
	has := func(flag string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag+"=") })
	}
	if has("--oidc-issuer-url") != has("--oidc-client-id") {
		return errors.New("--oidc-issuer-url (customized variable oidcIssuerURL) and --oidc-client-id (oidcClientID) must be set together")
	}
	return nil
}
