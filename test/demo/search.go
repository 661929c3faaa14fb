package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// indexPoll is how long the fleet index may take to have the rows of both clusters, and to notice that one is away.
var indexPoll = wait.Poll{Every: time.Second, For: 2 * time.Minute}

// showSearch asks the hub's fleet index: a search of both clusters, and a list while one of them is away.
func (d *demo) showSearch(ctx context.Context) error {
	path, env := d.hubUsersKubectl()
	search := []string{"clusterproxy", "search", "kind:pod", "label:app=web"}
	if err := d.awaitOutput(ctx, env, path, search, clusters...); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "The hub has an index of what kubectl get prints of all clusters, and finds any word in it:")
	if _, err := d.show(ctx, env, path, search...); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\nThe agent of %s stops. The index has what the cluster had, and says as of when:\n", lesser)
	if err := d.scaleAgent(ctx, path, 0); err != nil {
		return err
	}
	list := []string{"--context=fleet", "get", "pods"}
	if err := d.awaitOutput(ctx, env, path, list, "cluster "+lesser+" was last heard at"); err != nil {
		return err
	}
	out, err := d.show(ctx, env, path, list...)
	if err == nil && !strings.Contains(out, "\n"+lesser+" ") {
		err = fmt.Errorf("the list has no pod of %s", lesser)
	}
	return errors.Join(err, d.scaleAgent(ctx, path, 1))
}

// scaleAgent stops the agent of a cluster, or starts it again, as the cluster's own administrator can.
func (d *demo) scaleAgent(ctx context.Context, kubectl string, replicas int) error {
	_, err := d.show(ctx, nil, kubectl, "--kubeconfig="+d.lab.Managed[lesser].KubeconfigPath, "--namespace="+identity.DefaultAgentNamespace,
		"scale", "deployment", "cluster-proxy-proxy-agent", fmt.Sprintf("--replicas=%d", replicas))
	return err
}

// hubUsersKubectl is kubectl, and its environment, of a user who has nothing but her kubeconfig of the hub.
func (d *demo) hubUsersKubectl() (path string, env []string) {
	path, env = d.lab.Kubectl("hub")
	// kubectl finds its plugins on the PATH.
	return path, append(env, "KUBECONFIG="+d.hubKubeconfig, "PATH="+d.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// awaitOutput runs a command without showing it until it prints all of some texts.
func (d *demo) awaitOutput(ctx context.Context, env []string, name string, args []string, texts ...string) error {
	return indexPoll.Try(ctx, func() error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		for _, text := range texts {
			if err == nil && !strings.Contains(string(out), text) {
				err = fmt.Errorf("%q is not in what it prints", text)
			}
		}
		if err != nil {
			return fmt.Errorf("running %s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
		}
		return nil
	})
}
