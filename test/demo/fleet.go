package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// showFleet has the same user work on both clusters at once, in the view that the
// chart makes. On cluster2 she may do less than on cluster1.
func (d *demo) showFleet(ctx context.Context) error {
	path, env := d.hubUsersKubectl()
	if _, err := d.show(ctx, env, path, "clusterproxy", "kubeconfig", "--merge"); err != nil {
		return err
	}
	pods, err := d.show(ctx, env, path, "--context=fleet", "get", "pods")
	if err != nil {
		return err
	}
	names := map[string]string{}
	for line := range strings.Lines(pods) {
		if columns := strings.Fields(line); len(columns) > 1 {
			names[columns[0]] = columns[1]
		}
	}
	if names["CLUSTER"] != "NAME" {
		return errors.New("the first columns are not CLUSTER and NAME")
	}
	for _, cluster := range clusters {
		if !strings.HasPrefix(names[cluster], "web-") {
			return fmt.Errorf("no pod of %s is in the list", cluster)
		}
	}
	fmt.Fprintf(d.out, "\nOn %s, %s may work in namespace default only. What a cluster refuses is left out, and kubectl says so:\n", lesser, hubUser)
	all, err := d.show(ctx, env, path, "--context=fleet", "get", "pods", "-A")
	if err != nil {
		return err
	}
	if !strings.Contains(all, "Warning:") || !strings.Contains(all, lesser) {
		return fmt.Errorf("no warning says that %s is left out", lesser)
	}
	fmt.Fprintln(d.out, "\nNAME@CLUSTER is one object:")
	for _, cluster := range clusters {
		logs, err := d.show(ctx, env, path, "--context=fleet", "logs", names[cluster]+"@"+cluster, "--tail=1")
		if err != nil {
			return err
		}
		if !strings.Contains(logs, cluster) {
			return fmt.Errorf("the logs do not name %s", cluster)
		}
	}
	fmt.Fprintln(d.out, "\nOne watch has the changes of both clusters:")
	return d.showFleetWatch(ctx, path, append(os.Environ(), env...))
}

// showFleetWatch changes a ConfigMap on each cluster, and sees both changes in one watch.
func (d *demo) showFleetWatch(ctx context.Context, path string, env []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Each object says in an annotation which cluster it is from.
	columns := `custom-columns=CLUSTER:.metadata.annotations.clusterproxy\.open-cluster-management\.io/cluster,NAME:.metadata.name`
	args := []string{"--context=fleet", "get", "configmaps", "--watch-only", "--output"}
	watch := exec.CommandContext(ctx, path, append(args, columns)...)
	watch.Env = env
	lines := map[string]*lineWaiter{}
	var outputs []io.Writer
	for _, cluster := range clusters {
		lines[cluster] = newLineWaiter(cluster)
		outputs = append(outputs, lines[cluster])
	}
	watch.Stdout, watch.Stderr = io.MultiWriter(outputs...), os.Stderr
	fmt.Fprintf(d.out, "$ %s %s '%s' &\n", filepath.Base(path), strings.Join(args, " "), columns)
	if err := watch.Start(); err != nil {
		return err
	}
	defer func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}()
	for _, cluster := range clusters {
		if err := d.changeUntilSeen(ctx, cluster, lines[cluster]); err != nil {
			return err
		}
		fmt.Fprintf(d.out, "%s\n", lines[cluster].Line())
	}
	return nil
}
