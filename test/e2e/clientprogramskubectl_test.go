package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"open-cluster-management.io/cluster-proxy/test/testkit/terminal"
)

// typeKeys runs a step in a terminal, and types.
func (p clientProgram) typeKeys(ctx context.Context, dir string, way clientWay, v clientValues, step clientStep) (string, error) {
	program, err := terminal.Start(p.shell(ctx, dir, way, v, step.does))
	if err != nil {
		return "", err
	}
	defer program.Close()
	await := func(texts []string) (string, error) {
		var wanted []string
		for _, text := range texts {
			wanted = append(wanted, v.in(text))
		}
		return program.Await(ctx, stepLimit/2, wanted...)
	}
	for _, key := range step.keys {
		if screen, err := await(key.when); err != nil {
			return screen, err
		}
		if err := program.Type(v.in(key.keys)); err != nil {
			return program.Screen(), err
		}
	}
	return await(step.want)
}

// everydayPrograms are what CI takes, on the lab's fake nodes too.
func everydayPrograms(path string) []clientProgram {
	some := clientProgram{name: "kubectl", command: "kubectl", path: path, prepare: kubectlFiles}
	for _, step := range kubectlSteps {
		if step.everyday {
			some.steps = append(some.steps, step.clientStep)
		}
	}
	return []clientProgram{some, fabric8()}
}

// kubectlFiles are what is applied.
func kubectlFiles(dir string, v clientValues) error {
	for name, content := range map[string]string{
		"map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {colour: green}\n",
		"kustomization.yaml": "resources: [map.yaml]\nnamePrefix: kustom-\nlabels: [{pairs: {made-by: kustomize}}]\n" +
			"configMapGenerator: [{name: generated, literals: [colour=blue]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
		"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: one, labels: {run: one}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n" +
			"  - {name: web, image: \"lab.local/web:1\", imagePullPolicy: IfNotPresent, env: [{name: CLUSTER, value: " + v.cluster + "}]}\n",
		"copied": "copied there and back\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

type kubectlStep struct {
	clientStep
	everyday bool
}

func does(line string, want ...string) kubectlStep {
	return kubectlStep{clientStep: clientStep{does: line, want: want}}
}

// daily is one that CI does too.
func daily(line string, want ...string) kubectlStep {
	step := does(line, want...)
	step.everyday = true
	return step
}

// inTerminal types keys when texts have appeared, in turns.
func inTerminal(line string, want []string, turns ...string) kubectlStep {
	step := does(line, want...)
	step.keys = []clientKey{}
	for i := 0; i+1 < len(turns); i += 2 {
		step.keys = append(step.keys, clientKey{strings.Split(turns[i], "|"), turns[i+1]})
	}
	return step
}

// except says why it differs by some endpoints.
func (s kubectlStep) except(why string, ways ...string) kubectlStep {
	if s.differs == nil {
		s.differs = map[string]string{}
	}
	for way, why := range differing(why, ways...) {
		s.differs[way] = why
	}
	return s
}

// onlyBy is a step of one endpoint.
func (s kubectlStep) onlyBy(way string) kubectlStep {
	s.only = way
	return s
}

// beside is a command line while another one uses what it prints, which ends it.
func beside(line string, shows []string, client string, want ...string) kubectlStep {
	step := does(line, want...)
	// The file of the step before would be read, until this one's is opened.
	step.script = "rm -f printed; " + line + " >printed 2>&1 & server=$!; trap 'kill $server' EXIT; "
	for _, text := range shows {
		step.script += "until grep -qsF '" + text + "' printed; do kill -0 $server || { cat printed; exit 1; }; sleep 0.1; done; "
	}
	step.script += client
	return step
}

// following is a command line that goes on until it has printed texts.
func following(line string, want ...string) kubectlStep {
	return beside(line, want, "cat printed", want...)
}

// podsPath is what the hub does not have.
const podsPath = "/api/v1/namespaces/{home}/pods"

// forwarding asks through a port that a command line forwards.
func forwarding(line, path string, want ...string) kubectlStep {
	step := beside(line, []string{"127.0.0.1:"}, "busybox wget -q -O - http://127.0.0.1:$(sed -n 's/.*127.0.0.1:\\([0-9]*\\).*/\\1/p' printed | head -n 1)"+path, want...)
	step.does += ", and a request through it"
	return step
}

var kubectlSteps = []kubectlStep{
	daily("kubectl version", "Client Version: v1.", "Server Version: v1."),
	does("kubectl cluster-info", "is running at"),
	daily("kubectl api-resources", "deployments", "customresourcedefinitions"),
	does("kubectl api-versions", "apps/v1"),
	does("kubectl explain pods.spec.containers", "List of containers belonging to the pod"),
	does("kubectl get --raw /readyz", "ok"),
	does("kubectl config get-contexts", "c"),
	does("kubectl get namespaces", "kube-system"),
	does("kubectl get nodes -o wide", "Ready"),
	daily("kubectl get pods", "web-", "Running"),
	does("kubectl get pods -A -o wide", "web-", "Running"),
	does("kubectl get all -n {home}", "deployment.apps/web", "service/web"),
	daily("kubectl get deploy {web} -o yaml", "kind: Deployment"),
	does("kubectl get pods -l app=web -o jsonpath='{.items[*].metadata.name}'", "web-"),
	does("kubectl get pods --sort-by=.metadata.creationTimestamp -o custom-columns=WHO:.metadata.name,WHERE:.spec.nodeName", "WHO", "web-"),
	following("kubectl get pods --watch", "web-"),
	does("kubectl describe pod {pod}", "Containers:", "lab.local/web:1"),
	does("kubectl describe deploy {web}", "StrategyType:", "NewReplicaSet:"),
	does("kubectl describe node {node}", "Allocatable:", "web-"),
	daily("kubectl logs {pod} --tail=1", "{cluster} has been up"),
	does("kubectl logs deploy/{web} --tail=1", "{cluster} has been up"),
	does("kubectl logs -l app=web --prefix --tail=1", "[pod/web-", "{cluster} has been up"),
	following("kubectl logs -f {pod} --tail=1", "{cluster} has been up"),
	daily("kubectl exec {pod} -- sh -c 'echo $CLUSTER'", "{cluster}"),
	does("kubectl exec deploy/{web} -- sh -c 'echo $CLUSTER'", "{cluster}"),
	does("echo typed | kubectl exec -i {pod} -- cat", "typed"),
	does("kubectl exec {pod} -- sh -c 'exit 3' || test $? = 3", "exit code 3"),
	inTerminal("kubectl exec -it {pod} -- sh", []string{"tty 40 160 {cluster}"}, "#", "echo tty $(stty size) $CLUSTER\r"),
	inTerminal("kubectl attach -it {pod}", []string{"has been up"}),
	does("kubectl cp copied {home}/{pod}:/copied && kubectl exec {pod} -- cat /copied", "copied there and back"),
	does("kubectl cp {home}/{pod}:/copied back && cat back", "copied there and back"),
	forwarding("kubectl port-forward {pod} :8080", "", "hello from {cluster}"),
	forwarding("kubectl port-forward service/{web} :80", "", "hello from {cluster}"),
	forwarding("kubectl proxy --port=0", podsPath, "web-").
		except("kubectl proxy leaves out the path of the server's URL, which names the cluster: give it --append-server-path", pathed...),
	forwarding("kubectl proxy --port=0 --append-server-path", podsPath, "web-"),
	does("kubectl apply -n {ns} -f pod.yaml", "pod/one created"),
	does("kubectl wait -n {ns} --for=condition=Ready pod/one --timeout=60s", "condition met"),
	does("kubectl debug -n {ns} one --image=lab.local/web:1 --target=web -c debugging -- sh -c 'echo debugged; sleep 600' && "+
		"until kubectl logs -n {ns} one -c debugging | grep debugged; do sleep 0.2; done", "debugged"),
	does("kubectl debug -n {ns} one --copy-to=copy --image=lab.local/web:1 -c debugging -- sleep 600 && kubectl get pod -n {ns} copy -o name", "pod/copy"),
	inTerminal("kubectl run -n {ns} two -it --rm --image=lab.local/web:1 --image-pull-policy=IfNotPresent --restart=Never --command -- sh", []string{"deleted"}, "#", "exit\r"),
	does("kubectl diff -n {ns} -f map.yaml || test $? = 1", "+  colour: green"),
	daily("kubectl apply -n {ns} -f map.yaml", "configmap/applied created"),
	daily("kubectl diff -n {ns} -f map.yaml"),
	does("sed s/green/red/ map.yaml | kubectl apply -n {ns} -f - && kubectl get -n {ns} configmap applied -o jsonpath='{.data.colour}'", "red"),
	does("kubectl apply -n {ns} --server-side --force-conflicts -f map.yaml", "serverside-applied"),
	does("kubectl apply -n {ns} --dry-run=server -f map.yaml", "(server dry run)"),
	does("kubectl apply -n {ns} -k . && kubectl get configmap -n {ns} -l made-by=kustomize -o name", "configmap/kustom-applied", "configmap/kustom-generated"),
	does("kubectl delete -n {ns} -k .", `"kustom-applied" deleted`),
	does("KUBE_EDITOR='sed -i s/green/edited/' kubectl edit -n {ns} configmap applied", "edited"),
	does("kubectl get -n {ns} configmap applied -o yaml | sed s/edited/replaced/ | kubectl replace -n {ns} -f -", "configmap/applied replaced"),
	does("kubectl patch -n {ns} configmap applied --type=merge -p '{\"data\":{\"size\":\"7\"}}'", "configmap/applied patched"),
	does("kubectl label -n {ns} configmap applied tier=front && kubectl annotate -n {ns} configmap applied note=seen", "labeled", "annotated"),
	does("kubectl create -n {ns} configmap made --from-literal=a=b && kubectl create -n {ns} secret generic hidden --from-literal=a=b", "configmap/made created", "secret/hidden created"),
	does("kubectl create -n {ns} token default", "ey"),
	does("kubectl create -n {ns} job once --image=lab.local/web:1 -- echo done && kubectl wait -n {ns} --for=condition=complete job/once --timeout=60s", "condition met"),
	does("kubectl create -n {ns} deployment app --image=lab.local/web:1 --port=8080", "deployment.apps/app created"),
	does("kubectl rollout -n {ns} status deployment/app --timeout=60s", "successfully rolled out"),
	does("kubectl scale -n {ns} deployment app --replicas=2 && kubectl rollout -n {ns} status deployment/app --timeout=60s", "deployment.apps/app scaled", "successfully rolled out"),
	does("kubectl set env -n {ns} deployment/app CLUSTER=changed && kubectl rollout -n {ns} status deployment/app --timeout=60s", "env updated", "successfully rolled out"),
	does("kubectl rollout -n {ns} history deployment/app", "REVISION"),
	does("kubectl rollout -n {ns} undo deployment/app && kubectl rollout -n {ns} restart deployment/app", "rolled back", "restarted"),
	does("kubectl rollout -n {ns} pause deployment/app && kubectl rollout -n {ns} resume deployment/app", "paused", "resumed"),
	does("kubectl expose -n {ns} deployment app && until kubectl get -n {ns} endpointslices | grep app-; do sleep 0.2; done", "service/app exposed", "app-"),
	does("kubectl autoscale -n {ns} deployment app --max=3 && kubectl get -n {ns} hpa", "autoscaled", "Deployment/app"),
	does("kubectl events -n {ns} --types=Normal", "Scheduled"),
	daily("kubectl auth can-i create deployments -n {ns}", "yes"),
	does("kubectl auth can-i --list -n {ns}", "*.*"),
	daily("kubectl auth whoami", "Username"),
	does("kubectl top nodes 2>&1 || true", "Metrics API not available"),
	does("kubectl drain {node} --pod-selector=app=app --delete-emptydir-data --force && kubectl uncordon {node}", "evicting pod", "uncordoned"),
	does("kubectl taint node {node} e2e=clients:PreferNoSchedule && kubectl taint node {node} e2e-", "tainted", "untainted"),
	does("kubectl get pods -n {ns} -o yaml --show-managed-fields", "managedFields"),
	does("kubectl delete -n {ns} pod one --wait", `"one" deleted`),
	does("kubectl delete -n {ns} all --all", `"app" deleted`),
	does("kubectl create namespace {scratch}-more@{cluster} && kubectl delete namespace {scratch}-more@{cluster}", "created", "deleted").onlyBy(onFleet),
	does("kubectl get pods -A", "CLUSTER", "cluster1", "{cluster}").onlyBy(onFleet),
	shownBy(does("kubectl auth can-i --list", "*.*", "selfsubjectaccessreviews.authorization.k8s.io").onlyBy(onFleet), onFleet),
	following("kubectl get deploy -n default --watch", "cluster1", "{cluster}").onlyBy(onFleet),
}

// kubectl is all that is done with one of its releases.
func kubectlProgram(name, version, path string) clientProgram {
	p := clientProgram{name: name, version: version, command: "kubectl", path: path, prepare: kubectlFiles}
	for _, step := range kubectlSteps {
		p.steps = append(p.steps, step.clientStep)
	}
	return p
}
