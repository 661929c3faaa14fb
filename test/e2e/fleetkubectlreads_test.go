package e2e

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
)

const asksNobody = "asks no cluster"

// commandsNotTried are commands of kubectl that TestFleetKubectlNamesTheCluster does not use, and why.
var commandsNotTried = map[string]string{
	"explain": "names kinds", "api-resources": "names nothing", "api-versions": "names nothing", "version": "names nothing",
	"cluster-info": "names nothing", "cluster-info dump": "lists", "auth whoami": "names nothing", "proxy": "passes requests on",
	"kustomize": asksNobody, "completion": asksNobody, "config": asksNobody, "kuberc": asksNobody, "plugin": asksNobody,
	"top pod": "the lab has no metrics: one GET by the name, as get", "top node": "the lab has no metrics: docs/reference/views.md says what a Plain view shows",
	"create secret tls": "as create secret generic, of files",
}

// workloads have pods that run.
const workloads = "pod deploy rs sts ds rc"

// namingReads are uses that change nothing.
func namingReads() []namingUse {
	const all = "pod deploy rs sts ds rc job cronjob svc pvc node"
	return []namingUse{
		{command: "get", kinds: all + " sa rolebinding csr", run: func(u *using) { u.says("get", u.ref(), "-o", "jsonpath={.metadata.labels.at}") }},
		{command: "describe", kinds: all, lacks: "pvc", run: func(u *using) { u.like("describe", u.kind, u.object()) }},
		{command: "events", kinds: all, run: func(u *using) {
			args := []string{"events", "--for", u.ref()}
			if u.kind == "node" {
				args = append(args, "-A") // they are in namespace default
			}
			u.like(args...)
		}},
		{command: "logs", kinds: workloads + " job svc", run: func(u *using) { u.says("logs", u.ref(), "--tail=1") }},
		{command: "exec", kinds: workloads + " svc", run: func(u *using) { u.says("exec", u.ref(), "--", "sh", "-c", "echo $CLUSTER") }},
		{command: "attach", kinds: workloads + " svc", run: func(u *using) {
			u.during([]string{"attach", u.ref()}, func(_ context.Context, line string) { u.isOf(line) })
		}},
		{command: "port-forward", kinds: workloads + " svc", run: func(u *using) {
			port := ":8080"
			if u.kind == "svc" {
				port = ":80"
			}
			u.forwards("port-forward", u.ref(), port)
		}},
		{command: "cp", kinds: "pod", run: func(u *using) { u.copies() }},
		{command: "wait", kinds: all, run: func(u *using) {
			u.do("", "wait", u.ref(), "--for=jsonpath={.metadata.labels.at}="+u.cluster, "--timeout=30s")
		}},
		{command: "rollout status", kinds: "deploy sts ds", run: func(u *using) { u.like("rollout", "status", u.ref(), "--watch=false") }},
		{command: "rollout history", kinds: "deploy sts ds", run: func(u *using) { u.like("rollout", "history", u.ref()) }},
		{command: "diff", kinds: all, run: func(u *using) {
			if object, ok := u.do("", "get", u.ref(), "-o", "yaml"); ok {
				u.do(object, "diff", "-f", "-") // a difference is an error
			}
		}},
		{command: "auth can-i", kinds: "pod", once: true, run: func(u *using) { u.do("", "auth", "can-i", "get", u.ref()) }},
	}
}

// during runs kubectl, and ends it when f has done its work with the first line that it prints.
func (u *using) during(args []string, f func(ctx context.Context, line string)) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), suite.Timeout)
	defer cancel()
	cmd, err := u.kubectl.command(ctx, u.scoped(args)...)
	if err != nil {
		u.t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		f(ctx, line)
		cancel()
	}
	_ = cmd.Wait() // it was killed, or its words say why it failed
	if err != nil {
		u.refuse(errs.String())
	}
}

// forwards asks the program behind a port who it is.
func (u *using) forwards(args ...string) {
	u.t.Helper()
	u.during(args, func(ctx context.Context, line string) {
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
		body, err := plainhttp.Get(ctx, "http://"+address+"/")
		if err != nil {
			u.fail("the port of %q: %v", line, err)
			return
		}
		u.isOf(body)
	})
}

// copies reads a file that the pod was made to write.
func (u *using) copies() {
	u.t.Helper()
	if _, ok := u.do("", "exec", u.ref(), "--", "sh", "-c", `printf "$CLUSTER" > `+u.id); !ok {
		return
	}
	file := filepath.Join(u.t.TempDir(), u.id)
	if _, ok := u.do("", "cp", u.object()+":"+u.id, file); !ok {
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		u.fail("%v", err)
		return
	}
	u.isOf(string(got))
	u.do("", "exec", u.ref(), "--", "rm", u.id)
}
