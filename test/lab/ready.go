package lab

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// BinVariable names the environment variable with folders of ready-made programs, a list as
// PATH is one. EnvtestVariable is that of controller-runtime's envtest, with one such folder.
const (
	BinVariable     = "LAB_BIN"
	EnvtestVariable = "KUBEBUILDER_ASSETS"
)

// versionTimeout bounds how long a program may take to say its version.
const versionTimeout = 10 * time.Second

// question asks a program for its version, of which fits is what must be in the answer.
type question struct {
	args []string
	fits *regexp.Regexp
}

// questions are those to the programs that may be ready-made. kwok's version is that of the
// module from which its stages come.
var questions = map[string]question{
	"etcd":                    {[]string{"--version"}, regexp.MustCompile(`(?m)^etcd Version: 3\.7\.`)},
	"kube-apiserver":          {[]string{"--version"}, regexp.MustCompile(`^Kubernetes v1\.37\.`)},
	"kube-controller-manager": {[]string{"--version"}, regexp.MustCompile(`^Kubernetes v1\.37\.`)},
	"kube-scheduler":          {[]string{"--version"}, regexp.MustCompile(`^Kubernetes v1\.37\.`)},
	"kubectl":                 {[]string{"version", "--client"}, regexp.MustCompile(`(?m)^Client Version: v1\.37\.`)},
	"kwok":                    {[]string{"--version"}, regexp.MustCompile(`\bv0\.8\.0\b`)},
	"helm":                    {[]string{"version", "--short"}, regexp.MustCompile(`^v3\.`)},
}

// programsOf are the programs of a lab without nodes that are built from a module.
func programsOf(m module) []string {
	if m.links == nil {
		return []string{m.name}
	}
	return slices.DeleteFunc(slices.Clone(m.links), func(name string) bool { _, ok := questions[name]; return !ok })
}

// neverReady is for modules of which no ready-made program can be had.
func neverReady(module) bool { return false }

// readyFolders are those in which somebody has put programs for the lab.
func readyFolders() []string {
	return slices.DeleteFunc(append(filepath.SplitList(os.Getenv(BinVariable)), os.Getenv(EnvtestVariable)), func(folder string) bool { return folder == "" })
}

// findReady returns the files of ready-made programs of modules by their names. A module is built if one
// of its programs is missing, and then all of them are. It says on out why what is there is
// not used.
func findReady(ctx context.Context, modules []module, folders []string, out io.Writer) map[string]string {
	ready := map[string]string{}
	for _, m := range modules {
		found := map[string]string{}
		var missing []string
		for _, name := range programsOf(m) {
			if file := findProgram(ctx, folders, name, out); file != "" {
				found[name] = file
			} else {
				missing = append(missing, name)
			}
		}
		switch {
		case len(missing) == 0:
			for name, file := range found {
				fmt.Fprintf(out, "lab: using %s\n", file)
				ready[name] = file
			}
		case len(found) > 0:
			fmt.Fprintf(out, "lab: building %s all the same: %s not found in %s\n", m.name, strings.Join(missing, ", "), strings.Join(folders, ", "))
		}
	}
	return ready
}

// findProgram returns the first file of that name whose version fits.
func findProgram(ctx context.Context, folders []string, name string, out io.Writer) string {
	for _, folder := range folders {
		file, err := filepath.Abs(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		said, err := askVersion(ctx, file, questions[name].args)
		if err == nil && questions[name].fits.MatchString(said) {
			return file
		}
		line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
		fmt.Fprintf(out, "lab: not using %s: it says %q (%v), want %s\n", file, line, err, questions[name].fits)
	}
	return ""
}

// askVersion runs a program, without configuration of the user's own.
func askVersion(ctx context.Context, file string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, args...)
	home, err := os.MkdirTemp("", "lab-version-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + os.DevNull}
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	return string(said), err
}

// linkReady makes a folder with links of these names to ready-made programs, and to what is built
// of the others. Labs that run from it go on if other programs are found the next time.
func linkReady(built string, names []string, ready map[string]string) (string, error) {
	links := map[string]string{}
	for _, name := range names {
		links[name] = filepath.Join(built, name)
		if file, ok := ready[name]; ok {
			links[name] = file
		}
	}
	sum := sha256.Sum256(fmt.Append(nil, links)) // maps are printed in order
	dir := filepath.Join(filepath.Dir(built), fmt.Sprintf("ready-%x", sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, file := range links {
		link := filepath.Join(dir, name)
		if now, err := os.Readlink(link); err == nil && now == file {
			continue
		}
		partial := fmt.Sprintf("%s.%d.partial", link, os.Getpid())
		if err := os.Symlink(file, partial); err != nil {
			return "", err
		}
		if err := os.Rename(partial, link); err != nil {
			return "", err
		}
	}
	return dir, nil
}
