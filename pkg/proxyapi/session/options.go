package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
)

// minRecording is the smallest limit of recordings that makes sense.
const minRecording = 64 << 10

// RecordingOptions say which sessions of exec and attach are recorded, and where.
type RecordingOptions struct {
	// Dir is a folder, and URL a Service that gets the recordings. Without both nothing is recorded.
	Dir, URL string
	// CACert is the bundle of CAs of the Service. Cert and Key, or TokenFile, are what it knows the
	// proxy API by.
	CACert, Cert, Key, TokenFile string
	// Clusters and ClusterSets are the names of those whose sessions are recorded; without
	// both all are.
	Clusters, ClusterSets []string
	// FailClosed lets nobody have a session that is not recorded.
	FailClosed bool
	// Stdin records what users type too.
	Stdin bool
	// MaxFileSize and MaxTotalSize bound one file and all of them, MaxAge how long they are kept.
	MaxFileSize, MaxTotalSize resource.QuantityValue
	MaxAge                    time.Duration
}

// NewRecordingOptions returns the defaults.
func NewRecordingOptions() RecordingOptions {
	return RecordingOptions{
		MaxFileSize:  resource.QuantityValue{Quantity: resource.MustParse("100Mi")},
		MaxTotalSize: resource.QuantityValue{Quantity: resource.MustParse("10Gi")},
		MaxAge:       30 * 24 * time.Hour,
	}
}

func (o *RecordingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "recording-dir", o.Dir, "folder on a volume in which the sessions of exec and attach are recorded, in asciicast v2; replicas may share it; without this and --recording-url nothing is recorded")
	fs.StringVar(&o.URL, "recording-url", o.URL, "https URL of a Service that gets the recordings, each by one PUT of <url>/<day>/<time>-<session>.cast, in the place of --recording-dir")
	fs.StringVar(&o.CACert, "recording-ca-cert", o.CACert, "PEM file with the CA bundle of the certificate of --recording-url")
	fs.StringVar(&o.Cert, "recording-cert", o.Cert, "PEM file with the client certificate for --recording-url, in the place of --recording-token-file")
	fs.StringVar(&o.Key, "recording-key", o.Key, "PEM file with the key of --recording-cert")
	fs.StringVar(&o.TokenFile, "recording-token-file", o.TokenFile, "file with the bearer token for --recording-url, which is read for each recording")
	fs.StringSliceVar(&o.Clusters, "recording-clusters", o.Clusters, "names of the managed clusters whose sessions are recorded; without these and --recording-cluster-sets those of all clusters are")
	fs.StringSliceVar(&o.ClusterSets, "recording-cluster-sets", o.ClusterSets, "names of ManagedClusterSets for whose clusters sessions are recorded")
	fs.BoolVar(&o.FailClosed, "recording-fail-closed", o.FailClosed, "let nobody have a session that is not recorded: while the folder or the Service takes nothing, sessions are refused, and those that are open end; what cannot be recorded is refused too: CONNECT to the kube-apiservers of these clusters, and writing requests to nodes/proxy; without it sessions go on, and logs, metrics and the audit log say that they are not recorded")
	fs.BoolVar(&o.Stdin, "recording-stdin", o.Stdin, "record what users type too, passwords included")
	fs.Var(&o.MaxFileSize, "recording-max-file-size", "how large the recording of one session may become; the session fails to be recorded then")
	fs.Var(&o.MaxTotalSize, "recording-max-total-size", "how large all recordings in the folder together may become; the oldest ones are removed")
	fs.DurationVar(&o.MaxAge, "recording-max-age", o.MaxAge, "how long after its end a recording is removed")
}

// Validate does no I/O.
func (o *RecordingOptions) Validate(errs *flags.Errors) {
	if !o.Enabled() {
		if len(o.Clusters) > 0 || len(o.ClusterSets) > 0 || o.FailClosed || o.Stdin {
			errs.Refuse("recording-dir", o.Dir, "the other flags of recording need it, or --recording-url")
		}
		return
	}
	o.validatePlace(errs)
	for _, cluster := range o.Clusters {
		if identity.ValidateCluster(cluster) != nil {
			errs.Refuse("recording-clusters", cluster, "it must be the name of a managed cluster")
		}
	}
	for _, set := range o.ClusterSets {
		if set == "" {
			errs.Refuse("recording-cluster-sets", set, "it must be the name of a ManagedClusterSet")
		}
	}
	if o.MaxFileSize.Value() < minRecording {
		errs.Refuse("recording-max-file-size", o.MaxFileSize.String(), "it must be at least 64Ki")
	}
	if o.MaxTotalSize.Value() < o.MaxFileSize.Value() {
		errs.Refuse("recording-max-total-size", o.MaxTotalSize.String(), "it must be at least --recording-max-file-size")
	}
	if o.MaxAge <= 0 {
		errs.Refuse("recording-max-age", o.MaxAge.String(), "it must be longer than 0")
	}
}

// validatePlace checks where recordings go.
func (o *RecordingOptions) validatePlace(errs *flags.Errors) {
	to, err := url.Parse(o.URL)
	switch {
	case o.URL == "" && !filepath.IsAbs(o.Dir):
		errs.Refuse("recording-dir", o.Dir, "it must be an absolute path")
	case o.URL == "":
	case o.Dir != "":
		errs.Refuse("recording-url", o.URL, "recordings have one place: --recording-dir must be empty")
	case err != nil || to.Scheme != "https" || to.Hostname() == "" || to.User != nil || to.RawQuery != "" || to.Fragment != "":
		errs.Refuse("recording-url", o.URL, "it must be https://HOST[:PORT][/PATH]")
	case o.CACert == "":
		errs.Refuse("recording-ca-cert", o.CACert, "--recording-url needs it")
	case (o.Cert == "") != (o.Key == ""):
		errs.Refuse("recording-key", o.Key, "it and --recording-cert need each other")
	case (o.Cert == "") == (o.TokenFile == ""):
		errs.Refuse("recording-token-file", o.TokenFile, "--recording-url needs either this or --recording-cert")
	}
}

// Enabled reports whether anything is recorded.
func (o *RecordingOptions) Enabled() bool { return o.Dir != "" || o.URL != "" }

// place is what users read of where recordings go.
func (o *RecordingOptions) place() string {
	if o.URL != "" {
		return "Service"
	}
	return "volume"
}

// Credentials are those for the Service.
func (o *RecordingOptions) Credentials() pki.Files {
	return pki.Files{Cert: o.Cert, Key: o.Key, CA: o.CACert}
}

// Store are the options of recordings. The certificates are those of credentials.
func (o *RecordingOptions) Store(certificates *pki.Reloader) recording.Options {
	return recording.Options{Dir: o.Dir, Service: o.service(certificates), MaxFile: o.MaxFileSize.Value(), MaxTotal: o.MaxTotalSize.Value(), MaxAge: o.MaxAge, FailClosed: o.FailClosed}
}

// service is nil if recordings go to a folder.
func (o *RecordingOptions) service(certificates *pki.Reloader) *recording.Service {
	if o.URL == "" {
		return nil
	}
	to, err := url.Parse(o.URL)
	if err != nil {
		panic(err) // validate looked at it
	}
	s := &recording.Service{URL: to, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(dial.TCP{}.Tune(conn), certificates.ClientConfig(host))
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, pki.Explain(err)
		}
		return secured, nil
	}}
	if o.TokenFile != "" {
		s.Token = func() (string, error) {
			token, err := os.ReadFile(o.TokenFile)
			if err == nil && len(bytes.TrimSpace(token)) == 0 {
				err = fmt.Errorf("%s is empty", o.TokenFile)
			}
			return string(bytes.TrimSpace(token)), err
		}
	}
	return s
}
