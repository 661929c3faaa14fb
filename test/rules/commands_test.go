package rules

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	pluginSection = regexp.MustCompile("(?ms)^## kubectl clusterproxy([^\\n]*)\\n\\n```\\n(.*?)^```$")
	pluginFlag    = regexp.MustCompile(`(?m)^ +(?:-(\w), |    )--([\w-]+)`)
	indented      = regexp.MustCompile(`(?m)^    (.*)$`)
	span          = regexp.MustCompile("`([^`]+)`")
	pluginCommand = regexp.MustCompile(`kubectl clusterproxy((?: +[^\s;|#)>]+)*)`)
	commandWord   = regexp.MustCompile(`^[a-z]+$`)
	usedFlag      = regexp.MustCompile(`^(?:--([a-z][\w-]*)|-(\w)$)`)
	usedRole      = regexp.MustCompile(`--clusterrole[= ]([\w:.-]+)`)
	madeRole      = regexp.MustCompile(`create clusterrole ([\w-]+)`)
	chartRole     = regexp.MustCompile(`(?m)^kind: (?:Cluster)?Role\nmetadata:\n  name: (\S+)`)
	setValues     = regexp.MustCompile(`--set(?:-json|-string)?[= ]["']?([^"'\s]+)`)
	setKey        = regexp.MustCompile(`(?:^|,)([a-zA-Z][\w.]*)(?:\[\d+\])?=`)
	valueName     = regexp.MustCompile(`^([a-zA-Z]+(?:\.[a-zA-Z]+)+)(?:[=:].*)?$`)
)

// commandsOf are what a document has as code: lines of its blocks, with those that a backslash joins, and spans.
func commandsOf(content string) (found []string) {
	var block strings.Builder
	for _, line := range indented.FindAllStringSubmatch(content, -1) {
		block.WriteString(line[1] + "\n")
	}
	found = strings.Split(strings.ReplaceAll(block.String(), "\\\n", " "), "\n")
	for _, s := range span.FindAllStringSubmatch(indented.ReplaceAllString(fenced.ReplaceAllString(content, ""), ""), -1) {
		found = append(found, strings.ReplaceAll(s[1], "\n", " "))
	}
	return found
}

// TestCommands wants what documents tell people to type to exist: commands and flags of the plugin, values of
// the chart, and ClusterRoles. The references that it reads are held to the code by test/docs.
func TestCommands(t *testing.T) {
	plugin := map[string][]string{}
	for _, section := range pluginSection.FindAllStringSubmatch(read(t, "docs/reference/kubectl-clusterproxy.md"), -1) {
		name := strings.TrimSpace(section[1])
		for _, flag := range pluginFlag.FindAllStringSubmatch(section[2], -1) {
			plugin[name] = append(plugin[name], flag[1], flag[2])
		}
	}
	var values valueSchema
	if err := json.Unmarshal([]byte(read(t, "charts/cluster-proxy/values.schema.json")), &values); err != nil {
		t.Fatal(err)
	}
	roles := []string{"view", "edit", "admin", "cluster-admin", "multikueue-sa-role"} // the last one is Kueue's
	templates, err := filepath.Glob(filepath.Join(root(t), "charts/cluster-proxy/templates/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range templates {
		for _, role := range chartRole.FindAllStringSubmatch(read(t, "charts/cluster-proxy/templates/"+filepath.Base(template)), -1) {
			roles = append(roles, role[1])
		}
	}
	var commands, settings int
	for _, page := range append(pages(t), "SECURITY.md", "charts/cluster-proxy/README.md") {
		content := read(t, page)
		made := slices.Clone(roles)
		for _, role := range madeRole.FindAllStringSubmatch(content, -1) {
			made = append(made, role[1])
		}
		for _, code := range commandsOf(content) {
			for _, command := range pluginCommand.FindAllStringSubmatch(code, -1) {
				commands++
				checkPlugin(t, page, plugin, strings.Fields(command[1]))
			}
			for _, role := range usedRole.FindAllStringSubmatch(code, -1) {
				if !slices.Contains(made, role[1]) {
					t.Errorf("%s binds ClusterRole %s, which there is not", page, role[1])
				}
			}
			var keys []string
			for _, set := range setValues.FindAllStringSubmatch(code, -1) {
				for _, key := range setKey.FindAllStringSubmatch(set[1], -1) {
					keys = append(keys, key[1])
				}
			}
			if name := valueName.FindStringSubmatch(code); name != nil && values.has(strings.SplitN(name[1], ".", 2)[:1]) {
				keys = append(keys, name[1])
			}
			for _, key := range keys {
				settings++
				if !values.has(strings.Split(key, ".")) {
					t.Errorf("%s sets %s, which is no value of the chart", page, key)
				}
			}
		}
	}
	if len(plugin) < 15 || commands < 60 || settings < 200 {
		t.Errorf("found %d commands of the plugin, %d uses of them and %d of values: something is wrong with the test", len(plugin), commands, settings)
	}
}

// checkPlugin wants the plugin to have the command and the flags of a command line.
func checkPlugin(t *testing.T, page string, plugin map[string][]string, words []string) {
	t.Helper()
	name, rest := "", words
	for len(rest) > 0 && plugin[strings.TrimSpace(name+" "+rest[0])] != nil {
		name, rest = strings.TrimSpace(name+" "+rest[0]), rest[1:]
	}
	if name == "" && len(rest) > 0 && commandWord.MatchString(rest[0]) {
		t.Errorf("%s has kubectl clusterproxy %s, which is no command", page, rest[0])
		return
	}
	for _, word := range rest {
		flag := usedFlag.FindStringSubmatch(word)
		if flag != nil && !slices.Contains(slices.Concat(plugin[name], plugin[""]), flag[1]+flag[2]) {
			t.Errorf("%s has kubectl clusterproxy %s with %s, which it does not have", page, name, word)
		}
	}
}

// valueSchema is what the chart's schema says of a value; one without properties leaves the rest to Kubernetes.
type valueSchema struct {
	Properties map[string]valueSchema
}

func (s valueSchema) has(path []string) bool {
	for _, name := range path {
		if s.Properties == nil {
			break
		}
		next, ok := s.Properties[name]
		if !ok {
			return false
		}
		s = next
	}
	return true
}
