package flags

import (
	"embed"
	"fmt"
	"regexp"

	"github.com/spf13/pflag"
)

// help has what each process prints of its flags. hack/update-texts.sh writes it.
//
//go:embed help
var help embed.FS

// helpLine matches the first line of a flag: its name, and the type of its value, which
// booleans do not have.
var helpLine = regexp.MustCompile(`(?m)^ {2,6}(?:-\w, )?--([a-z0-9-]+)(?: (\w+))?  `)

// OfProcess returns a set with the flags of a process, by which others can tell whether it
// takes given arguments. It panics if there is no such process.
func OfProcess(process string) *pflag.FlagSet {
	text, err := help.ReadFile("help/" + process + ".txt")
	if err != nil {
		panic(fmt.Sprintf("reading the flags of %q: %v", process, err))
	}
	set := pflag.NewFlagSet(process, pflag.ContinueOnError)
	for _, line := range helpLine.FindAllStringSubmatch(string(text), -1) {
		switch name := line[1]; line[2] {
		case "":
			set.Bool(name, false, "")
		case "int":
			set.Int(name, 0, "")
		case "duration":
			set.Duration(name, 0, "")
		case "strings":
			set.StringSlice(name, nil, "")
		default:
			set.String(name, "", "")
		}
	}
	// Those of component-base, which all processes have.
	set.IntP("v", "v", 0, "")
	set.String("vmodule", "", "")
	set.Duration("log-flush-frequency", 0, "")
	set.String("logging-format", "", "")
	return set
}
