// Command kubectl-clusterproxy is the kubectl plugin of the addon: kubectl runs
// it as "kubectl clusterproxy" when it is on the PATH. It speaks to the hub with
// the user's own kubeconfig, through the aggregated API, and needs no right that
// the user does not have.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials of clouds
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil && err != errNotGood { // what is wrong was said already
		fmt.Fprintln(terminal{os.Stderr}, "error:", err)
	}
	os.Exit(exitStatus(err))
}

// exitStatus is that of every command: see longHelp.
func exitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotGood):
		return 1
	}
	return 2
}
