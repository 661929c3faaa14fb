package flags

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig loads the kubeconfig that a flag names. Without a file it is the one
// of $KUBECONFIG, which may list several as for kubectl, and without that the
// pod's service account. A process without such a flag passes none.
func RESTConfig(flag, file string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		if flag != "" {
			flag = "--" + flag + ", "
		}
		return nil, fmt.Errorf("loading a kubeconfig (%s$KUBECONFIG or the pod's service account): %w", flag, err)
	}
	return config, nil
}
