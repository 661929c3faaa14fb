package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	apiserver "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/logs"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
)

var update = flag.Bool("update", false, "write the flags to pkg/flags/help in place of checking them")

// TestFlags holds pkg/flags/help to what --help prints, so that each change of a
// flag is seen in a review.
func TestFlags(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "open-cluster-management-addon")
	for _, command := range newCommand(io.Discard).Commands() {
		if command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		t.Run(command.Name(), func(t *testing.T) {
			file := filepath.Join("../../pkg/flags/help", command.Name()+".txt")
			got := []byte(command.LocalNonPersistentFlags().FlagUsagesWrapped(120))
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what --help prints (%v); run: hack/update-texts.sh\ngot\n%s\nwant\n%s", file, err, got, want)
			}
		})
	}
}

// TestFlagsOfProcesses holds what the addon manager checks arguments with to the flags that
// the processes have.
func TestFlagsOfProcesses(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "open-cluster-management-addon")
	root := newCommand(io.Discard)
	logs.AddFlags(root.PersistentFlags()) // as cli.Run does
	for _, command := range root.Commands() {
		if command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		describe := func(set *pflag.FlagSet, into map[string]string) {
			set.VisitAll(func(f *pflag.Flag) {
				if f.Hidden {
					return // deprecated, of the proxy API's audit
				}
				switch kind := f.Value.Type(); kind {
				case "bool", "int", "duration", "stringSlice":
					into[f.Name] = kind
				case "int64":
					into[f.Name] = "int"
				default:
					into[f.Name] = "string"
				}
			})
		}
		got, want := map[string]string{}, map[string]string{}
		describe(flags.OfProcess(command.Name()), got)
		describe(command.LocalNonPersistentFlags(), want)
		describe(root.PersistentFlags(), want)
		want["v"] = "int" // of klog
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the flags of %s (-want +got):\n%s", command.Name(), diff)
		}
	}
}

// TestFlagsReadAlike holds the help of our flags to one style, kubectl's, and to
// one name and text for flags that are in several processes and mean the same: each
// that drains says how long by the same two flags.
func TestFlagsReadAlike(t *testing.T) {
	libraries := pflag.NewFlagSet("", pflag.ContinueOnError)
	apiserver.NewAuditOptions().AddFlags(libraries)
	apiserver.NewTracingOptions().AddFlags(libraries)
	sentence := regexp.MustCompile(`^[A-Z][a-z]|\.$|[a-z]\. [A-Z]`)
	proper := regexp.MustCompile(`^(Unix|VersionTLS|ConfigMap)`)
	begins := map[string]string{"min-drain-duration": "how long new ", "graceful-shutdown-timeout": "how long open ", "kubeconfig": "kubeconfig of the "}
	for _, command := range newCommand(io.Discard).Commands() {
		flags := command.LocalNonPersistentFlags()
		if (flags.Lookup("min-drain-duration") == nil) != (flags.Lookup("graceful-shutdown-timeout") == nil) {
			t.Errorf("%s has one of --min-drain-duration and --graceful-shutdown-timeout, want both", command.Name())
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if library := libraries.Lookup(f.Name); library != nil && library.Usage == f.Usage {
				return
			}
			if sentence.MatchString(proper.ReplaceAllString(f.Usage, "")) {
				t.Errorf("%s --%s: %q; write it in lower case, without a full stop", command.Name(), f.Name, f.Usage)
			}
			if !strings.HasPrefix(f.Usage, begins[f.Name]) {
				t.Errorf("%s --%s: %q, want it to begin with %q as in other processes", command.Name(), f.Name, f.Usage, begins[f.Name])
			}
		})
	}
}
