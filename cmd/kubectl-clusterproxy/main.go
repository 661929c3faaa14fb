// Command kubectl-clusterproxy is the kubectl plugin of the addon: kubectl runs
// it as "kubectl clusterproxy" when it is on the PATH. See package kubectlplugin.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credentials of clouds

	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := kubectlplugin.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
