package pki

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TLSParameters are the protocol's knobs. The zero value means TLS 1.3 with
// the cipher suites that Go chooses.
type TLSParameters struct {
	// MinVersion is tls.VersionTLS12 or tls.VersionTLS13; 0 means the latter.
	MinVersion uint16
	// CipherSuites apply to TLS 1.2 only; empty means Go's choice.
	CipherSuites []uint16
}

var versions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// ParseTLSParameters reads konnectivity's names: a version such as
// "VersionTLS12" (empty for the default) and cipher suites as crypto/tls
// spells them. Versions before 1.2 and insecure suites are refused.
func ParseTLSParameters(minVersion string, cipherSuites []string) (TLSParameters, error) {
	var parameters TLSParameters
	if minVersion != "" {
		version, ok := versions[minVersion]
		if !ok {
			return TLSParameters{}, fmt.Errorf("TLS version %q is not one of %s", minVersion,
				strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
		}
		parameters.MinVersion = version
	}
	for _, name := range cipherSuites {
		i := slices.IndexFunc(tls.CipherSuites(), func(suite *tls.CipherSuite) bool { return suite.Name == name })
		if i < 0 {
			return TLSParameters{}, fmt.Errorf("cipher suite %q is unknown or insecure", name)
		}
		parameters.CipherSuites = append(parameters.CipherSuites, tls.CipherSuites()[i].ID)
	}
	return parameters, nil
}

func (p TLSParameters) apply(config *tls.Config) *tls.Config {
	config.MinVersion = p.MinVersion
	if config.MinVersion == 0 {
		config.MinVersion = tls.VersionTLS13
	}
	config.CipherSuites = p.CipherSuites
	return config
}

// Keys of OCM's ConfigMap ocm-tls-profile, which are files where it is mounted.
const (
	profileMinVersion   = "minTLSVersion"
	profileCipherSuites = "cipherSuites"
)

// profileVersions are the ways in which OCM and OpenShift write versions. Versions
// older than TLS 1.2 become 1.2: stricter than asked for, and never weaker.
var profileVersions = map[string]uint16{
	"":             0,
	"VersionTLS10": tls.VersionTLS12, "TLSv1.0": tls.VersionTLS12, "TLSv1": tls.VersionTLS12,
	"VersionTLS11": tls.VersionTLS12, "TLSv1.1": tls.VersionTLS12,
	"VersionTLS12": tls.VersionTLS12, "TLSv1.2": tls.VersionTLS12,
	"VersionTLS13": tls.VersionTLS13, "TLSv1.3": tls.VersionTLS13,
}

// parseTLSProfile reads the values of ConfigMap ocm-tls-profile: a version, and
// IANA names of cipher suites, separated by commas. Both empty means the
// defaults. Suites that Go does not have, or has as insecure, are left out,
// because profiles are written for all programs of a cluster; if no other is
// left, that is an error.
func parseTLSProfile(minVersion, cipherSuites string) (TLSParameters, error) {
	version, ok := profileVersions[strings.TrimSpace(minVersion)]
	if !ok {
		return TLSParameters{}, fmt.Errorf("%s is %q: it must be VersionTLS12 or VersionTLS13", profileMinVersion, minVersion)
	}
	parameters := TLSParameters{MinVersion: version}
	for name := range strings.SplitSeq(cipherSuites, ",") {
		known, err := ParseTLSParameters("", []string{strings.TrimSpace(name)})
		if err == nil {
			parameters.CipherSuites = append(parameters.CipherSuites, known.CipherSuites...)
		}
	}
	if len(parameters.CipherSuites) == 0 && strings.TrimSpace(cipherSuites) != "" {
		return TLSParameters{}, fmt.Errorf("%s is %q: none of them is a cipher suite that is known and secure", profileCipherSuites, cipherSuites)
	}
	return parameters, nil
}
