package proxyapi

import (
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
)

// minRecording is the smallest limit of recordings that makes sense.
const minRecording = 64 << 10

// RecordingOptions say which sessions of exec and attach are recorded, and where.
type RecordingOptions struct {
	// Dir is a folder; empty means that nothing is recorded.
	Dir string
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

func newRecordingOptions() RecordingOptions {
	return RecordingOptions{
		MaxFileSize:  resource.QuantityValue{Quantity: resource.MustParse("100Mi")},
		MaxTotalSize: resource.QuantityValue{Quantity: resource.MustParse("10Gi")},
		MaxAge:       30 * 24 * time.Hour,
	}
}

func (o *RecordingOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Dir, "recording-dir", o.Dir, "folder on a volume in which the sessions of exec and attach are recorded, in asciicast v2; replicas may share it; empty means that nothing is recorded")
	fs.StringSliceVar(&o.Clusters, "recording-clusters", o.Clusters, "names of the managed clusters whose sessions are recorded; without these and --recording-cluster-sets those of all clusters are")
	fs.StringSliceVar(&o.ClusterSets, "recording-cluster-sets", o.ClusterSets, "names of ManagedClusterSets for whose clusters sessions are recorded")
	fs.BoolVar(&o.FailClosed, "recording-fail-closed", o.FailClosed, "let nobody have a session that is not recorded: while the folder cannot be written to, sessions are refused, and those that are open end; what cannot be recorded is refused too: CONNECT to the kube-apiservers of these clusters, and writing requests to nodes/proxy; without it sessions go on, and logs, metrics and the audit log say that they are not recorded")
	fs.BoolVar(&o.Stdin, "recording-stdin", o.Stdin, "record what users type too, passwords included")
	fs.Var(&o.MaxFileSize, "recording-max-file-size", "how large the recording of one session may become; the session fails to be recorded then")
	fs.Var(&o.MaxTotalSize, "recording-max-total-size", "how large all recordings in the folder together may become; the oldest ones are removed")
	fs.DurationVar(&o.MaxAge, "recording-max-age", o.MaxAge, "how long after its end a recording is removed")
}

// validate does no I/O.
func (o *RecordingOptions) validate(errs *flags.Errors) {
	if o.Dir == "" {
		if len(o.Clusters) > 0 || len(o.ClusterSets) > 0 || o.FailClosed || o.Stdin {
			errs.Refuse("recording-dir", o.Dir, "the other flags of recording need it")
		}
		return
	}
	if !filepath.IsAbs(o.Dir) {
		errs.Refuse("recording-dir", o.Dir, "it must be an absolute path")
	}
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

// store are the options of the folder.
func (o *RecordingOptions) store() recording.Options {
	return recording.Options{Dir: o.Dir, MaxFile: o.MaxFileSize.Value(), MaxTotal: o.MaxTotalSize.Value(), MaxAge: o.MaxAge, FailClosed: o.FailClosed}
}
