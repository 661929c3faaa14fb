package agentaddon

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
)

// variables is the schema of AddOnDeploymentConfig's customized variables: what each
// one does to the values, or why its value is not allowed. Those of upstream that have
// no effect here are accepted and reported: a cluster that comes from upstream must not
// be cut off until its AddOnDeploymentConfig is edited.
var variables = map[string]func(v *values, value string) error{
	"replicas": func(v *values, value string) error {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 || n > 100 {
			return fmt.Errorf("must be a number from 0 to 100")
		}
		v.Replicas = int32(n)
		return nil
	},
	"imagePullPolicy": func(v *values, value string) error {
		allowed := []string{"Always", "IfNotPresent", "Never"}
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		v.ImagePullPolicy = value
		return nil
	},
	"extraKeys": func(v *values, value string) error {
		for key := range strings.SplitSeq(value, ",") {
			if key = strings.TrimSpace(key); !extraKey.MatchString(key) {
				return fmt.Errorf("must be a list of keys in lower case, with commas between them")
			}
			v.ExtraKeys = append(v.ExtraKeys, key)
			v.Args = append(v.Args, "--extra-keys="+key)
		}
		return nil
	},
	"priorityClassName": func(v *values, value string) error {
		if problems := validation.IsDNS1123Subdomain(value); len(problems) > 0 {
			return fmt.Errorf("must be the name of a PriorityClass of the managed cluster: %s", strings.Join(problems, "; "))
		}
		v.PriorityClassName = value
		return nil
	},
	"oidcIssuerURL":            setIssuer,
	"oidcClientID":             oidcFlag("client-id", nil),
	"oidcUsernameClaim":        oidcFlag("username-claim", nil),
	"oidcUsernamePrefix":       oidcFlag("username-prefix", nil),
	"oidcGroupsClaim":          oidcFlag("groups-claim", nil),
	"oidcGroupsPrefix":         oidcFlag("groups-prefix", nil),
	"oidcReservedNamePrefixes": oidcFlag("reserved-name-prefixes", isList),
	"oidcSigningAlgs":          oidcFlag("signing-algs", isList),
	"oidcRequiredClaimsJSON":   setRequiredClaims,
	"oidcCAConfigMap":          setOIDCCA,
	"networkPolicy": func(v *values, value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("must be true or false")
		}
		v.NetworkPolicy.Enabled = on
		return nil
	},
	// An ExternalName Service needs it, of which there is one only while upstream's
	// agents serve.
	"serviceDomain": func(v *values, value string) error {
		if v.Former != nil && len(validation.IsDNS1123Subdomain(value)) == 0 {
			v.Former.ServiceDomain = value
		}
		v.ignored = append(v.ignored, "serviceDomain")
		return nil
	},
	"enableImpersonation": func(v *values, value string) error {
		// Upstream takes for true whatever strconv does.
		if on, err := strconv.ParseBool(value); err != nil || !on {
			// enableImpersonation=false must not be ignored: the cluster would accept
			// the hub's users.
			v.Args = append(v.Args, "--enable-impersonation=false")
			return nil
		}
		v.ignored = append(v.ignored, "enableImpersonation")
		return nil
	},
	"verbosity": func(v *values, value string) error {
		if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 10 {
			return fmt.Errorf("must be a number from 0 to 10")
		}
		v.Args = append(v.Args, "--v="+value)
		return nil
	},
}

var extraKey = regexp.MustCompile(`^[a-z0-9]([a-z0-9./_-]*[a-z0-9])?$`)

// applyVariables changes values as the variables say. An unknown variable is an error,
// of which its author learns.
func applyVariables(v *values, customized []addonv1alpha1.CustomizedVariable) error {
	for _, variable := range customized {
		set, ok := variables[variable.Name]
		if !ok {
			return fmt.Errorf("customized variable %q is not known: there are %s", variable.Name, strings.Join(slices.Sorted(maps.Keys(variables)), ", "))
		}
		if err := set(v, variable.Value); err != nil {
			return fmt.Errorf("customized variable %q is %q: it %w", variable.Name, variable.Value, err)
		}
	}
	return nil
}
