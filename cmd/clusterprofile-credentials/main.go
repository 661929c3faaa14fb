// Command clusterprofile-credentials is a credential plugin of client-go, for programs on the
// hub that find clusters by ClusterProfiles (KEP-4322, KEP-5339): it returns the token of the
// program's own service account that the kubelet projects into the program's pod.
//
// The token is for the proxy API alone (identity.ProxyAPIAudience), so that the hub's
// kube-apiserver refuses it, and the kubelet replaces it before it ends. No Secret holds it, and
// the plugin asks nobody: the program needs no right to make tokens. A TokenRequest by the
// plugin itself would need one, and an address and a CA of the hub.
//
// Anything but the standard library and package identity would make the binary several times as
// large; the few fields of client.authentication.k8s.io/v1 are declared here.
// See docs/how-to/clusterprofiles.md.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	name = "clusterprofile-credentials"
	// apiVersion and kind are those of what client-go and the plugin tell each other.
	apiVersion = "client.authentication.k8s.io/v1"
	kind       = "ExecCredential"
	// defaultTokenFile is where examples/cluster-profile has the kubelet project the token.
	defaultTokenFile = "/var/run/secrets/" + identity.ProxyAPIAudience + "/token"
	// maxInfo bounds what client-go tells: Linux passes 128 KiB in one variable.
	maxInfo = 256 << 10
	// maxToken bounds a token. Those of service accounts have about 1 KiB.
	maxToken = 64 << 10
)

func main() {
	err := run(os.Args[1:], os.Getenv("KUBERNETES_EXEC_INFO"), os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// run writes the credential that client-go asks for by info.
func run(args []string, info string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	file := flags.String("token-file", defaultTokenFile, "file with the token, which the kubelet projects for audience "+identity.ProxyAPIAudience)
	server := flags.String("server", "", "https URL of the proxy API: a ClusterProfile with another address gets no token. The program must tell the cluster (provideClusterInfo)")
	install := flags.String("install", "", "copy this program into a folder, and do nothing else: an init container does that")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only", flags.Arg(0))
	}
	if *install != "" {
		return copyTo(*install)
	}
	told, err := readInfo(info)
	if err != nil {
		return err
	}
	if *server != "" {
		if err := told.checkServer(*server); err != nil {
			return err
		}
	}
	now := time.Now()
	token, expires, err := readToken(*file, now)
	if err != nil {
		return err
	}
	var c credential
	c.APIVersion, c.Kind, c.Status.Token = apiVersion, kind, token
	// client-go asks again at half of what is left. The kubelet replaces a token at four fifths of
	// its time, so none is used near its end.
	c.Status.Expires = now.Add(expires.Sub(now) / 2).UTC().Truncate(time.Second)
	return json.NewEncoder(out).Encode(c)
}

// execInfo is what the plugin reads of what client-go tells it.
type execInfo struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Server string `json:"server"`
		} `json:"cluster"`
	} `json:"spec"`
}

// credential is the answer.
type credential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     struct {
		Expires time.Time `json:"expirationTimestamp"`
		Token   string    `json:"token"`
	} `json:"status"`
}

func readInfo(info string) (told execInfo, err error) {
	switch {
	case info == "":
		return told, errors.New("KUBERNETES_EXEC_INFO is not set: client-go starts this program, if it is the command of an execConfig")
	case len(info) > maxInfo:
		return told, fmt.Errorf("KUBERNETES_EXEC_INFO has %d bytes, and %d at most are read", len(info), maxInfo)
	}
	if err := json.NewDecoder(strings.NewReader(info)).Decode(&told); err != nil {
		return told, fmt.Errorf("reading KUBERNETES_EXEC_INFO: %w", err)
	}
	if told.APIVersion != apiVersion || told.Kind != kind {
		return told, fmt.Errorf("KUBERNETES_EXEC_INFO is %.80q of %.80q: set apiVersion %s in the execConfig", told.Kind, told.APIVersion, apiVersion)
	}
	return told, nil
}

// checkServer returns an error unless the token would go to a cluster of this proxy API. The
// writers of a ClusterProfile's status choose its address.
func (i execInfo) checkServer(proxyAPI string) error {
	told := i.Spec.Cluster.Server
	if !strings.HasPrefix(proxyAPI, "https://") {
		return fmt.Errorf("--server=%s is no https URL", proxyAPI)
	}
	if told == "" {
		return errors.New("--server is set, but the program does not tell the cluster: set provideClusterInfo in the execConfig, or leave out --server")
	}
	cluster, ok := strings.CutPrefix(told, strings.TrimSuffix(proxyAPI, "/")+"/")
	if !ok || identity.ValidateCluster(cluster) != nil {
		return fmt.Errorf("the cluster is at %.200q, which is no cluster at --server=%s: no token is for it", told, proxyAPI)
	}
	return nil
}

// readToken returns the token of a file, and when it expires. Nobody verifies it here: its
// claims are read for errors that say what to do.
func readToken(file string, now time.Time) (token string, expires time.Time, err error) {
	stat, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", expires, fmt.Errorf("there is no token: mount a volume with a projected serviceAccountToken for audience %s, or name its file by --token-file: %w", identity.ProxyAPIAudience, err)
	case err != nil:
		return "", expires, fmt.Errorf("reading the token: %w", err)
	case !stat.Mode().IsRegular(): // to open a named pipe would wait
		return "", expires, fmt.Errorf("%s is no file: --token-file is the path of the token, not of its folder", file)
	}
	opened, err := os.Open(file)
	if err != nil {
		return "", expires, fmt.Errorf("reading the token: %w", err)
	}
	defer opened.Close()
	content, err := io.ReadAll(io.LimitReader(opened, maxToken+1))
	if err != nil {
		return "", expires, fmt.Errorf("reading the token: %w", err)
	}
	var claims struct {
		Audiences []string `json:"aud"`
		Expires   int64    `json:"exp"`
	}
	token = strings.TrimSpace(string(content))
	parts := strings.Split(token, ".")
	if len(content) > maxToken || len(parts) != 3 || strings.ContainsAny(token, " \t\r\n") ||
		json.NewDecoder(io.LimitReader(base64.NewDecoder(base64.RawURLEncoding, strings.NewReader(parts[1])), maxToken)).Decode(&claims) != nil || claims.Expires <= 0 {
		return "", expires, fmt.Errorf("%s does not hold the token of a service account", file)
	}
	if !slices.Contains(claims.Audiences, identity.ProxyAPIAudience) {
		return "", expires, fmt.Errorf("the token in %s is for %.200q: set audience %s in the projected volume", file, claims.Audiences, identity.ProxyAPIAudience)
	}
	if expires = time.Unix(claims.Expires, 0); !expires.After(now) {
		return "", expires, fmt.Errorf("the token in %s expired at %s: the kubelet replaces it long before, so look at its logs and at the node's clock", file, expires.UTC().Format(time.RFC3339))
	}
	return token, expires, nil
}

// copyTo copies this program into a folder. A program that runs from there is not disturbed.
func copyTo(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file+".new", content, 0o755); err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	return os.Rename(file+".new", file)
}
