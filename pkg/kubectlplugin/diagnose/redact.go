package diagnose

import (
	"regexp"
)

// removed stands where something was that only its owner may have.
const removed = "[removed]"

// secretWords end the names of credentials.
const secretWords = `token|password|passwd|secret|credential|api-?key`

// secretTexts are credentials as they stand in text. Each has one group before and one behind
// what is removed.
var secretTexts = []*regexp.Regexp{
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)()`),
	regexp.MustCompile(`()LS0tLS1CRUdJTi[A-Za-z0-9+/]{16,}=*()`), // PEM in base64: it may be a key
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*()`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ \t]+)[^\s"',;]+()`),
	regexp.MustCompile(`(://)[^/\s"'@]+(@)`), // user and password in a URL
	regexp.MustCompile(`(?i)((?:` + secretWords + `)s?=["']?)[^\s"',;&]+()`),
	regexp.MustCompile(`(?i)((?:` + secretWords + `)s?\\?":[ \t]*\\?")[^"\\]+()`),
	regexp.MustCompile(`(?im)(^[ \t-]*\w*(?:` + secretWords + `):[ \t]+)\S+([ \t]*$)`), // a line of YAML
	regexp.MustCompile(`(?i)(passw(?:or)?d:[ \t]*)\S+()`),
}

// secretNames are those of fields whose value is a credential.
var secretNames = regexp.MustCompile(`(?i)(?:token|password|passwd|credentials?|api-?key|client-key-data|private-?key)$`)

// openVariables are the named values that stay: variables of our containers, those of an
// AddOnDeploymentConfig that this addon has, and OCM's ClusterClaims. All other ones may be anything.
var openVariables = regexp.MustCompile(`^(?:GOMEMLIMIT|(?i:(?:https?|no)_proxy)|POD_[A-Z]+|PROXY_AGENT_ID` +
	`|replicas|imagePullPolicy|extraKeys|priorityClassName|oidc[A-Za-z]+|networkPolicy|serviceDomain|enableImpersonation|verbosity` +
	`|[a-z0-9.-]+\.(?:k8s\.io|open-cluster-management\.io))$`)

// redactText removes credentials from text.
func redactText(text string) string {
	for _, secret := range secretTexts {
		text = secret.ReplaceAllString(text, "${1}"+removed+"${2}")
	}
	return text
}

// redact removes credentials, and what nobody reads, from a JSON value. It changes maps and
// lists in place.
func redact(value any) any {
	switch v := value.(type) {
	case string:
		return redactText(v)
	case []any:
		for i := range v {
			v[i] = redact(v[i])
		}
	case map[string]any:
		return redactObject(v)
	}
	return value
}

func redactObject(o map[string]any) any {
	delete(o, "managedFields")
	// A variable of a container or of a configuration has its name beside its value.
	name, isVariable := o["name"].(string)
	for key, value := range o {
		_, isText := value.(string)
		switch {
		case key == "kubectl.kubernetes.io/last-applied-configuration":
			delete(o, key) // the object says the same
		case isText && (secretNames.MatchString(key) || key == "value" && isVariable && !openVariables.MatchString(name)):
			o[key] = removed
		default:
			o[key] = redact(value)
		}
	}
	return o
}
