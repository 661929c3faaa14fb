package docs

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

var update = flag.Bool("update", false, "write the pages in place of checking them")

// mark begins what is made of the code.
const mark = "<!-- Made of the code from here on: hack/update-texts.sh -->\n"

// TestReference holds the pages to the code.
func TestReference(t *testing.T) {
	for page, made := range map[string]func(*testing.T) string{
		"alerts": alerts, "crds": definitions, "dashboards": dashboards, "errors": failures, "flags": processFlags, "helm-values": values, "kubectl-clusterproxy": commands,
	} {
		t.Run(page, func(t *testing.T) {
			file := filepath.Join("../../docs/reference", page+".md")
			content := read(t, file)
			text, _, ok := strings.Cut(content, mark)
			if !ok {
				t.Fatalf("%s has no mark %s", file, mark)
			}
			want := text + mark + "\n" + strings.TrimSpace(made(t)) + "\n"
			if content == want {
				return
			}
			if !*update {
				t.Fatalf("%s is not what the code says; run: hack/update-texts.sh\ngot\n%s\nwant\n%s", file, content, want)
			}
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// width is that of the lines that are made here; a word that is longer has a line of its own.
const width = 140

// fill breaks a text into lines, of which those after the first begin with indent. A span of code stays together.
func fill(text, indent string) string {
	var out strings.Builder
	length := 0
	for _, word := range regexp.MustCompile("(?:`[^`]*`|[^\\s`])+").FindAllString(text, -1) {
		switch n := len([]rune(word)); {
		case length == 0:
			length = n
		case length+1+n > width:
			out.WriteString("\n" + indent)
			length = len(indent) + n
		default:
			out.WriteString(" ")
			length += 1 + n
		}
		out.WriteString(word)
	}
	return out.String()
}

// item is one of a list: a name, what is in brackets behind it, and a text if there is one.
func item(name, brackets, text string) string {
	line := "- " + name + " (" + brackets + ")"
	if text = strings.TrimSpace(text); text != "" {
		line += ": " + escape(text)
	}
	return fill(line, "  ") + "\n"
}

// alerts are those of the chart.
func alerts(t *testing.T) string {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, For          string
				Labels, Annotations map[string]string
			}
		}
	}
	parse(t, "../../charts/cluster-proxy/files/rules.yaml", &file)
	label, value := regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`), regexp.MustCompile(`\{\{ \$value[^}]*\}\}`)
	var items []string
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" {
				continue
			}
			what := r.Labels["severity"]
			if r.For != "" {
				what += ", after " + r.For
			}
			if process := r.Labels["process"]; process != "" {
				what += ", " + process
			}
			text := label.ReplaceAllString(value.ReplaceAllString(r.Annotations["summary"]+" "+r.Annotations["description"], "N"), "<$1>")
			items = append(items, item(fmt.Sprintf("[%s](../runbooks/%s.md)", r.Alert, r.Alert), what, text))
		}
	}
	slices.Sort(items)
	return strings.Join(items, "")
}

func parse(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// definitions are the CustomResourceDefinitions with all their fields.
func definitions(t *testing.T) string {
	files, err := filepath.Glob("../../charts/cluster-proxy/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CustomResourceDefinitions: %v", err)
	}
	var out strings.Builder
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		parse(t, file, &crd)
		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			fmt.Fprintf(&out, "## %s\n\n`%s/%s`, %s.\n\n%s\n\n", crd.Spec.Names.Kind, crd.Spec.Group, version.Name, strings.ToLower(string(crd.Spec.Scope)), fill(escape(schema.Description), ""))
			for _, field := range []string{"spec", "status"} {
				fields(&out, field, schema.Properties[field], slices.Contains(schema.Required, field))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// fields writes a line for a field, and for those that it has.
func fields(out *strings.Builder, name string, schema apiextensionsv1.JSONSchemaProps, required bool) {
	kind, of := schema.Type, &schema
	for of.Items != nil && of.Items.Schema != nil {
		of = of.Items.Schema
		name, kind = name+"[]", "list of "+of.Type
	}
	if schema.XIntOrString {
		kind = "integer or string"
	}
	if required {
		kind += ", required"
	}
	if schema.Default != nil {
		kind += ", default `" + string(schema.Default.Raw) + "`"
	}
	var choices []string
	for _, choice := range of.Enum {
		choices = append(choices, "`"+strings.Trim(string(choice.Raw), `"`)+"`")
	}
	if choices != nil {
		kind += ", one of " + strings.Join(choices, " ")
	}
	out.WriteString(item("`"+name+"`", kind, schema.Description))
	for _, field := range slices.Sorted(maps.Keys(of.Properties)) {
		fields(out, name+"."+field, of.Properties[field], slices.Contains(of.Required, field))
	}
}

// escape keeps Markdown from taking a name in angle brackets for HTML.
func escape(text string) string { return strings.ReplaceAll(text, "<", "&lt;") }

// failures are what users are answered for each code of package tunnel.
func failures(t *testing.T) string {
	codes := regexp.MustCompile(`(?m)((?:^\t// .*\n)+)\t(\w+) +Code = "(\w+)"$`).FindAllStringSubmatch(read(t, "../../pkg/tunnel/error.go"), -1)
	if len(codes) == 0 {
		t.Fatal("no codes of errors in pkg/tunnel/error.go")
	}
	var out strings.Builder
	for _, code := range codes {
		_, meaning, _ := strings.Cut(strings.ReplaceAll(code[1], "\t// ", " "), ": ")
		status, message := agentclient.StatusOf(&tunnel.Error{Code: tunnel.Code(code[3])}, "CLUSTER", time.Time{})
		meaning = strings.Join(strings.Fields(meaning), " ")
		out.WriteString(item("**"+code[3]+"**", fmt.Sprint(status), strings.ToUpper(meaning[:1])+meaning[1:]+" Users read: "+message+"."))
	}
	return out.String()
}

// processFlags are the flags of each process, as cmd/cluster-proxy holds them to --help.
func processFlags(t *testing.T) string {
	files, err := filepath.Glob("../../pkg/flags/help/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no flags: %v", err)
	}
	var out strings.Builder
	for _, file := range files {
		fmt.Fprintf(&out, "## %s\n\n```\n%s```\n\n", strings.TrimSuffix(filepath.Base(file), ".txt"), read(t, file))
	}
	return out.String()
}

// commands are the plugin's, with what --help prints.
func commands(t *testing.T) string {
	var out strings.Builder
	var add func(path ...string)
	add = func(path ...string) {
		fmt.Fprintf(&out, "## %s\n\n```\n%s```\n\n", strings.Join(append([]string{"kubectl clusterproxy"}, path...), " "), folded(run(t, append(path, "--help")...)))
		for line := range strings.Lines(run(t, append(append([]string{"__complete"}, path...), "")...)) {
			if name, _, ok := strings.Cut(line, "\t"); ok && name != "help" && (len(path) == 0 || path[0] == "pass") && len(path) < 2 {
				add(append(slices.Clone(path), name)...)
			}
		}
	}
	add()
	return out.String()
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errOut bytes.Buffer
	if status := kubectlplugin.Run(t.Context(), args, &out, &errOut); status != 0 {
		t.Fatalf("%q: exit status %d: %s", args, status, errOut.String())
	}
	return out.String()
}

// folded breaks the lines that are too long for a page.
func folded(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for len(line) > width+10 {
			at := strings.LastIndex(line[:width], " ")
			out.WriteString(line[:at] + "\n")
			line = strings.Repeat(" ", 39) + line[at+1:]
		}
		out.WriteString(line)
	}
	return out.String()
}
