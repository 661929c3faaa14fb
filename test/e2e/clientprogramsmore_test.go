package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

// allPrograms are those that the lab has built or installed, by their commands, and those that are
// parts of this test.
func allPrograms(built []lab.ClientProgram) []clientProgram {
	var programs []clientProgram
	for _, b := range built {
		p := clientProgram{name: b.Name, version: b.Version, command: b.Command, path: b.Path}
		switch b.Name {
		case "kubectl":
			p = kubectlProgram(b.Name, b.Version, b.Path)
		case "helm 3", "helm 4":
			p.steps = helmSteps(b.Name)
		case "stern":
			p.steps = plain(sternSteps)
		case "k9s":
			p.steps, p.prepare = plain(k9sSteps), k9sFiles
		case "Flux' pkg/ssa":
			p.steps, p.prepare = plain(fluxSteps), deployedFiles
		case "Argo CD's gitops-engine":
			p.steps, p.prepare = plain(argocdSteps), argocdFiles
		case "@kubernetes/client-node":
			p.steps = scriptSteps("client.js")
		case "python3-kubernetes":
			p.steps = scriptSteps("client.py")
		}
		programs = append(programs, p)
	}
	return append(programs, fabric8(), headlamp(), controllerRuntime())
}

// plain are steps without what else kubectl's have.
func plain(steps []kubectlStep) (some []clientStep) {
	for _, step := range steps {
		some = append(some, step.clientStep)
	}
	return some
}

// labChart has helm's own chart run the lab's image: there is no registry.
const labChart = "--set image.repository=lab.local/web --set image.tag=1 --set image.pullPolicy=IfNotPresent --set service.port=8080 "

func helmSteps(name string) []clientStep {
	wait := "--wait --timeout 90s"
	return plain([]kubectlStep{
		does("helm version --short", "v"+name[len(name)-1:]+"."),
		does("helm create chart", "Creating chart"),
		does("helm lint chart", "0 chart(s) failed"),
		does("helm template web chart --dry-run=server -n {ns}", "kind: Deployment"),
		does("helm install web chart -n {ns} --dry-run=server "+labChart, "STATUS: pending-install"),
		does("helm install web chart -n {ns} "+labChart+wait, "STATUS: deployed"),
		does("helm list -n {ns}", "web", "deployed", "chart-0.1.0"),
		does("helm status web -n {ns}", "STATUS: deployed"),
		does("helm get manifest web -n {ns} && helm get values web -n {ns}", "kind: Service", "lab.local/web"),
		does("helm upgrade web chart -n {ns} "+labChart+"--set replicaCount=2 "+wait, "has been upgraded"),
		does("helm upgrade --install web chart -n {ns} "+labChart+"--set replicaCount=1 "+wait, "has been upgraded"),
		does("helm history web -n {ns}", "superseded", "deployed"),
		does("helm rollback web 1 -n {ns} "+wait, "Rollback was a success"),
		does("sed -i 's|image: busybox|image: lab.local/web:1|' chart/templates/tests/test-connection.yaml && helm upgrade web chart -n {ns} "+labChart+wait+" && helm test web -n {ns} --logs", "Phase:          Succeeded"),
		does("helm uninstall web -n {ns} --wait", `release "web" uninstalled`),
		does("helm list -n {ns} -q | wc -l", "0"),
		does("helm list -A", "NAME").onlyBy(onFleet),
	})
}

var sternSteps = []kubectlStep{
	does("stern --version", "version"),
	does("stern web --no-follow --tail 1", "web-", "{cluster} has been up"),
	does("stern deployment/{web} --no-follow --tail 1", "web-", "{cluster} has been up"),
	does("stern -l app=web --no-follow --tail 1 -o json", `"podName":"web-`, "{cluster} has been up"),
	does("stern -A web --no-follow --tail 1 --container web", "{cluster} has been up"),
	following("stern web --tail 1", "+ web-", "{cluster} has been up"),
	inTerminal("stern web --tail 1", []string{"web-", "{cluster} has been up"}),
	following("stern . -n {home} --tail 1", "cluster1 has been up", "{cluster} has been up").onlyBy(onFleet),
}

// k9sFiles is a configuration in which it asks nobody for a newer release, and refreshes often.
func k9sFiles(dir string, v clientValues) error {
	folder := filepath.Join(dir, "k9s")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("k9s:\n  skipLatestRevCheck: true\n  refreshRate: 1\n  ui: {splashless: true, noIcons: true}\n"), 0o644)
}

var k9sSteps = []kubectlStep{
	does("k9s version -s", "v0.50.16"),
	shownBy(inTerminal("k9s -n default", []string{"pods(default)[", "web-", "Running"}), onFleet),
	inTerminal("k9s -n default -c deployments", []string{"deployments(default)[", "web"}),
	inTerminal("k9s -n default -c services", []string{"services(default)[", "kubernetes", "web"}),
	inTerminal("k9s -c nodes", []string{"nodes(all)[", "Ready"}),
	inTerminal("k9s -A -c pods", []string{"pods(all)[", "web-", "Running"}),
	inTerminal("k9s -n default -c pods", []string{"namespaces(all)[", "kube-system"}, "web-", ":ns\r"),
	inTerminal("k9s -n default -c pods", []string{"Logs(default/web-", "has been up"}, "web-", "l"),
	inTerminal("k9s -n default -c pods", []string{"Describe(default/web-", "Service Account"}, "web-", "d"),
	inTerminal("k9s -n default -c pods", []string{"YAML(default/web-", "apiVersion: v1"}, "web-", "y"),
	inTerminal("k9s -n default -c pods", []string{"tty 40 160"}, "web-", "s", "#", "echo tty $(stty size)\r", "# echo tty", "").
		except("it names the pod as the view lists it, and a view connects only if the name has the cluster: use names Qualified, or the cluster's context", onFleet),
	inTerminal("k9s -n default -c deployments", []string{"pods(default/", "web-"}, "web", "\r"),
	inTerminal("k9s -n default -c pods", []string{"Pulses(default)"}, "web-", ":pulses\r"),
	inTerminal("k9s -n default -c pods", []string{"Xray-Deployments(default)"}, "web-", ":xray deploy\r"),
	inTerminal("k9s -c contexts", []string{"contexts(all)[", "c"}),
}

// shownBy has the screen of an endpoint in the file.
func shownBy(step kubectlStep, way string) kubectlStep {
	step.shown = way
	return step
}

// deployedFiles is a Deployment with a ConfigMap, in the namespace of the steps.
func deployedFiles(dir string, v clientValues) error {
	return os.WriteFile(filepath.Join(dir, "manifests.yaml"), fmt.Appendf(nil, deployed, v.ns), 0o644)
}

const deployed = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %[1]q}
data: {colour: green}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: %[1]q}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "lab.local/web:1", imagePullPolicy: IfNotPresent}]
`

var fluxSteps = []kubectlStep{
	does("flux diff manifests.yaml", "ConfigMap/", "created"),
	does("flux apply manifests.yaml", "created", "all are healthy"),
	does("flux diff manifests.yaml", "unchanged"),
	does("sed -i s/green/red/ manifests.yaml && flux diff manifests.yaml", "configured"),
	does("flux apply manifests.yaml", "settings configured", "all are healthy"),
	does("flux delete manifests.yaml", "deleted"),
}

// argocdFiles is a repository with the manifests.
func argocdFiles(dir string, v clientValues) error {
	repository := filepath.Join(dir, "repository")
	if err := os.MkdirAll(repository, 0o755); err != nil {
		return err
	}
	if err := deployedFiles(repository, v); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=e2e", "-c", "user.email=e2e@example.org", "commit", "-q", "-m", "manifests"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", args, err, out)
		}
	}
	return nil
}

// gitops runs the agent until it has printed what a sync did, which it would repeat.
func gitops(what string, want ...string) kubectlStep {
	return beside("gitops repository --path . --default-namespace {ns} --port $((20000 + $$ % 10000))", want, "cat printed", want...).named(what)
}

// named says what a person does in words.
func (s kubectlStep) named(does string) kubectlStep {
	s.does = does
	return s
}

// before has a shell do something first.
func (s kubectlStep) before(line string) kubectlStep {
	s.script = line + "; " + s.script
	return s
}

var argocdSteps = []kubectlStep{
	gitops("gitops repository: a first sync", "configmap/settings created", "deployment.apps/app created"),
	gitops("gitops repository: another one", "configmap/settings unchanged", "deployment.apps/app unchanged").except(gitopsOfViews, onFleet),
	gitops("gitops repository: of what has changed", "configmap/settings configured", "deployment.apps/app unchanged").
		before("sed -i s/green/red/ repository/manifests.yaml").except(gitopsOfViews, onFleet),
}

// gitopsOfViews is why a second sync ends at the view's refusal to delete.
const gitopsOfViews = "it compares what it finds with its manifests by namespace and name, and a view finds plain ones: give it each cluster by a context of its own"

// scriptSteps are those of the clients in JavaScript and Python, whose scripts take the same.
func scriptSteps(script string) []clientStep {
	streamed := func(line, want string) kubectlStep {
		step := does(script+line, want)
		if script == "client.py" {
			step = step.except("its WebSockets take no name of a server: the certificate must have the host name, and the lab's does not", byHost).
				except("its WebSockets speak to an HTTPS proxy without TLS, the credential too", byConnect)
		}
		return step
	}
	steps := []kubectlStep{
		does(script+" version", "server v1."),
		does(script+" list {home}", "web-", "Running"),
		does(script+" watch {home}", "ADDED web-"),
		does(script+" logs {home} {pod}", "{cluster} has been up"),
		streamed(" exec {home} {pod} sh -c 'echo $CLUSTER'", "{cluster}"),
		streamed(" forward {home} {pod} 8080", "hello from {cluster}"),
		does(script+" can-i {home}", "allowed"),
		does(script+" create {ns} written", "created written"),
		does(script+" patch {ns} written changed", "data changed"),
		does(script+" delete {ns} written", "deleted written"),
	}
	if script == "client.js" {
		steps = append(steps, does(script+" informer {home}", "added web-"))
	} else {
		steps = append(steps, does(script+" dynamic {home}", "web 2"), does(script+" follow {home} {pod}", "{cluster} has been up"))
	}
	return plain(steps)
}
