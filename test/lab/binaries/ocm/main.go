// Command ocm holds the OCM programs that a lab needs, in one binary. It acts
// as the program that its first argument names. go.mod is that of the release
// which a lab runs by default; with -modfile=go-0.16.0.mod -tags=ocm016 the
// oldest release is built that the addon is tested with.
//
// Two intervals that are constants in OCM's own binaries can be shortened here
// by environment variables, so that a lab need not wait: LAB_ADDON_POLL, how
// often the agent looks at an addon's Lease, and LAB_ADDON_LEASE_SECONDS, a
// fifth of the age at which a Lease counts as stale.
package main

import (
	goflag "flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/cmd/hub"
	"open-cluster-management.io/ocm/pkg/cmd/spoke"
	"open-cluster-management.io/ocm/pkg/features"
	regspoke "open-cluster-management.io/ocm/pkg/registration/spoke"
	"open-cluster-management.io/ocm/pkg/registration/spoke/addon"
)

func main() {
	if d, err := time.ParseDuration(os.Getenv("LAB_ADDON_POLL")); err == nil {
		regspoke.AddOnLeaseControllerSyncInterval = d
	}
	if n, err := strconv.Atoi(os.Getenv("LAB_ADDON_LEASE_SECONDS")); err == nil {
		addon.AddOnLeaseControllerLeaseDurationSeconds = n
	}
	pflag.CommandLine.SetNormalizeFunc(utilflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	logs.AddFlags(pflag.CommandLine)
	logs.InitLogs()
	defer logs.FlushLogs()

	root := &cobra.Command{Use: "ocm"}
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	// Only the command asked for is built: each adds feature gates to a shared
	// set and panics when another has done so before.
	switch name {
	case "registration":
		utilruntime.Must(features.HubMutableFeatureGate.Add(ocmfeature.DefaultHubRegistrationFeatureGates))
		features.HubMutableFeatureGate.AddFlag(pflag.CommandLine)
		root.AddCommand(hub.NewRegistrationController())
	case "placement":
		root.AddCommand(hub.NewPlacementController())
	case "addon":
		root.AddCommand(hub.NewAddonManager())
	case "klusterlet":
		root.AddCommand(spoke.NewKlusterletAgentCmd())
	default:
		program := since(name)
		if program == nil {
			fmt.Fprintf(os.Stderr, "%q is not a program of this binary: registration, placement, addon, klusterlet, and since 1.2.0 grpc-server, addon-webhook\n", name)
			os.Exit(2)
		}
		root.AddCommand(program)
	}
	os.Args = append(os.Args[:1], os.Args[2:]...)
	root.SetArgs(append([]string{root.Commands()[0].Name()}, os.Args[1:]...))
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
