package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

func listPasses(ctx context.Context, p *cli.Factory, output string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	found, err := passes(ctx, hub)
	if err != nil {
		return err
	}
	for i := range found {
		found[i].ManagedFields = nil // kubectl does not show them either
	}
	for i := range found {
		found[i].TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass"}
	}
	list := v1alpha1.PassList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PassList"}, Items: append([]v1alpha1.Pass{}, found...)}
	if printed, err := p.Print(output, list); printed {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintln(p.Err, "There is no pass.")
		return nil
	}
	t := cli.NewTable("Name", "Made By", "Clusters", "Sets", "Role", "Left", "State")
	for i := range found {
		spec := &found[i].Spec
		left, state := passState(&found[i])
		t.Add(found[i].Name, spec.MadeBy, strings.Join(spec.Clusters, ","), strings.Join(spec.ClusterSets, ","), strings.ToLower(string(spec.Role)), left, state)
	}
	return p.PrintTable(t, false)
}

// passState is how long a pass lasts, and whether it does.
func passState(pass *v1alpha1.Pass) (left, state string) {
	remaining := time.Until(pass.Spec.Expires.Time)
	switch {
	case pass.DeletionTimestamp != nil:
		return "0s", "Ending"
	case remaining <= 0:
		return "0s", "Expired" // the addon manager is about to delete it
	}
	return duration.HumanDuration(remaining), "Active"
}

// revokePasses ends passes, and waits until nothing of them grants anything.
func revokePasses(ctx context.Context, p *cli.Factory, names []string) error {
	hub, err := p.Hub()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := revokePass(ctx, hub, name); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(p.Out, "pass %s is revoked; what it has open ends within 10 s\n", name)
	}
	return errors.Join(errs...)
}

func revokePass(ctx context.Context, hub kubernetes.Interface, name string) error {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("%q cannot be the name of a pass: %s", name, wrong[0])
	}
	var pass v1alpha1.Pass
	if err := cli.Get(ctx, hub, passesPath+"/"+name, &pass); cli.IsMissing(err, name) {
		return fmt.Errorf("no pass %q; see: kubectl clusterproxy pass list", name)
	} else if apierrors.IsNotFound(err) {
		return errNoPasses
	} else if err != nil {
		return fmt.Errorf("getting pass %q: %w", name, err)
	}
	if err := endPass(ctx, hub, &pass, true); err != nil {
		return fmt.Errorf("revoking pass %q: %w", name, err)
	}
	return nil
}
