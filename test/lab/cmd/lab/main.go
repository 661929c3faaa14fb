// Command lab runs a lab in the background and shows what is in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var options lab.Options
	root := &cobra.Command{Use: "lab", Short: "Run a hub and managed clusters on this machine", SilenceUsage: true, SilenceErrors: true}
	dir, err := lab.DefaultDir()
	root.PersistentFlags().StringVar(&options.Dir, "dir", dir, "folder of the lab")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if options.Dir == "" {
			return err
		}
		return nil
	}
	starting := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringSliceVar(&options.Clusters, "clusters", []string{"cluster1", "cluster2"}, "names of the managed clusters")
		c.Flags().StringSliceVar(&options.GRPC, "grpc", nil, "those of them that join by OCM's gRPC server")
		c.Flags().StringSliceVar(&options.Tokens, "tokens", nil, "those of them whose addons' credentials of the hub are tokens")
		c.Flags().StringSliceVar(&options.Older, "older", nil, "those of them whose kube-apiserver is "+lab.OlderKubernetes)
		c.Flags().StringVar(&options.LocalCluster, "local-cluster", "", "name under which the hub manages itself")
		c.Flags().StringVar((*string)(&options.OCM), "ocm", "", "release of OCM: "+string(lab.OCMCurrent)+", or "+string(lab.OCMOldest)+" (default $"+lab.ReleaseVariable+", or the first)")
		c.Flags().BoolVar(&options.Nodes, "nodes", false, "give each cluster a machine of its own with real pods (root, Linux)")
		c.Flags().StringVar(&options.Binary, "binary", "bin/cluster-proxy", "the addon's binary")
		c.Args = cobra.NoArgs
		return c
	}
	root.AddCommand(
		starting(&cobra.Command{Use: "up", Short: "Start a lab in the background", RunE: func(c *cobra.Command, _ []string) error {
			return up(c.Context(), options)
		}}),
		starting(&cobra.Command{Use: "serve", Hidden: true, RunE: func(c *cobra.Command, _ []string) error {
			options.Out = os.Stdout
			return lab.Serve(c.Context(), options)
		}}),
		&cobra.Command{Use: "down", Short: "Stop the lab and remove its files", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return lab.Down(options.Dir)
		}},
		&cobra.Command{Use: "status", Short: "Show the clusters and Services of the lab", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			return status(c.OutOrStdout(), options.Dir)
		}},
		&cobra.Command{Use: "kubeconfig CLUSTER", Short: "Print an administrator's kubeconfig of a cluster", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
			return kubeconfig(c.OutOrStdout(), options.Dir, args[0])
		}},
		&cobra.Command{Use: "check", Short: "Say what this machine lacks for a lab with nodes", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			if missing := lab.Missing(); missing != "" {
				return errors.New(missing)
			}
			return nil
		}},
		logsCommand(&options.Dir),
		installCommand(&options.Dir),
		envCommand(&options.Dir),
	)
	return root
}

func up(ctx context.Context, options lab.Options) error {
	options.Out = os.Stdout
	binary, err := filepath.Abs(options.Binary)
	if err != nil {
		return err
	}
	options.Binary = binary
	if err := lab.DownloadControlPlane(ctx, options.Out); err != nil {
		return err
	}
	l, err := lab.Up(ctx, options)
	if err != nil {
		return err
	}
	fmt.Printf("lab: ready; kubeconfig of the hub: %s\n", l.Hub.KubeconfigPath)
	return nil
}

func status(out io.Writer, dir string) error {
	l, err := lab.Open(dir)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tREADY\tKUBECONFIG")
	for _, s := range l.Status() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Ready, s.Kubeconfig)
	}
	fmt.Fprintln(w, "\nSERVICE\tADDRESS\t")
	for _, s := range l.Services() {
		fmt.Fprintf(w, "%s\t%s\t\n", s.Name, s.Address)
	}
	return w.Flush()
}

func kubeconfig(out io.Writer, dir, name string) error {
	l, err := lab.Open(dir)
	if err != nil {
		return err
	}
	c := l.Managed[name]
	if name == l.Hub.Name {
		c = l.Hub
	}
	if c == nil {
		return fmt.Errorf("no cluster %q in the lab; there are: %s", name, strings.Join(l.Names(), ", "))
	}
	raw, err := os.ReadFile(c.KubeconfigPath)
	if err != nil {
		return err
	}
	_, err = out.Write(raw)
	return err
}

func logsCommand(dir *string) *cobra.Command {
	var follow bool
	c := &cobra.Command{Use: "logs [NAME]", Short: "Show the log of a process, or the names of all logs", Args: cobra.MaximumNArgs(1), RunE: func(c *cobra.Command, args []string) error {
		files, err := filepath.Glob(filepath.Join(*dir, "logs", "*.log"))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("no logs in %s; start a lab with lab up", *dir), err)
		}
		var names []string
		for _, file := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".log"))
		}
		if len(args) == 0 {
			fmt.Fprintln(c.OutOrStdout(), strings.Join(names, "\n"))
			return nil
		}
		// Part of a name will do if it says which one is meant.
		matching := slices.DeleteFunc(names, func(name string) bool { return name != args[0] && !strings.Contains(name, args[0]) })
		if i := slices.Index(matching, args[0]); i >= 0 {
			matching = matching[i : i+1]
		}
		if len(matching) != 1 {
			return fmt.Errorf("%q is the name of %d logs; lab logs lists them all", args[0], len(matching))
		}
		tailArgs := []string{"-n", "+1"}
		if follow {
			tailArgs = []string{"-n", "50", "-f"}
		}
		tail := exec.CommandContext(c.Context(), "tail", append(tailArgs, filepath.Join(*dir, "logs", matching[0]+".log"))...)
		tail.Stdout, tail.Stderr = c.OutOrStdout(), c.ErrOrStderr()
		return tail.Run()
	}}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows")
	return c
}
