package accesspolicy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	_ "time/tzdata" // now.getHours("Europe/Berlin"): an image has no time zones

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The variables of expressions.
const (
	varUser    = "user"
	varRequest = "request"
	varCluster = "cluster"
	varNow     = "now"
)

// object are the fields of a request that say which objects it is about. A search hides them.
var object = []string{"group", "version", "resource", "subresource", "namespace", "name", "path"}

// environments returns the environment of expressions for each Sight. The Kubernetes
// version only matters for expressions that are written to a store, which a kube-apiserver does
// not look into here.
var environments = sync.OnceValue(func() (envs [Nothing + 1]*cel.Env) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for sight := range envs {
		extended, err := base.Extend(declare(Sight(sight)))
		if err != nil {
			panic(fmt.Sprintf("declaring the variables of policies: %v", err)) // they are constants
		}
		envs[sight] = extended.StoredExpressionsEnv()
	}
	return envs
})

// declare declares the variables that can be seen.
func declare(sight Sight) environment.VersionedOptions {
	listType := apiservercel.NewListType(apiservercel.StringType, -1)
	mapType := apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, -1)
	text, yes := apiservercel.StringType, apiservercel.BoolType
	types := map[string]*apiservercel.DeclType{
		varUser: objectType(varUser, map[string]*apiservercel.DeclType{"name": text, "uid": text, "groups": listType,
			"extra": apiservercel.NewMapType(apiservercel.StringType, listType, -1)}),
		varCluster: objectType(varCluster, map[string]*apiservercel.DeclType{"name": text, "labels": mapType, "sets": listType, "claims": mapType}),
	}
	if sight != Nothing {
		fields := map[string]*apiservercel.DeclType{"verb": text, "dryRun": yes, "upgrade": yes, "service": text}
		if sight == Whole {
			for _, name := range object {
				fields[name] = text
			}
		}
		types[varRequest] = objectType(varRequest, fields)
	}
	declared := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable(varNow, cel.TimestampType)}}
	for name, of := range types {
		declared.EnvOptions = append(declared.EnvOptions, cel.Variable(name, of.CelType()))
		declared.DeclTypes = append(declared.DeclTypes, of)
	}
	return declared
}

func objectType(variable string, of map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	fields := map[string]*apiservercel.DeclField{}
	for name, fieldType := range of {
		fields[name] = apiservercel.NewDeclField(name, fieldType, true, nil, nil)
	}
	return apiservercel.NewObjectType("accesspolicy."+variable, fields)
}

// compile returns the program of an expression, and the least that it has to see of a request.
func compile(expression string) (cel.Program, Sight, error) {
	envs := environments()
	checked, issues := envs[Whole].Compile(expression)
	if issues.Err() != nil {
		return nil, Whole, issuesError(issues)
	}
	if checked.OutputType() != cel.BoolType {
		return nil, Whole, fmt.Errorf("it is of type %s, and must be of type bool", checked.OutputType())
	}
	program, err := envs[Whole].Program(checked)
	if err != nil {
		return nil, Whole, err
	}
	// An expression that compiles where less is declared names no more than that.
	for sight := Nothing; sight > Whole; sight-- {
		if _, issues := envs[sight].Compile(expression); issues.Err() == nil {
			return program, sight, nil
		}
	}
	return program, Whole, nil
}

// issuesError says on one line what does not compile, and where.
func issuesError(issues *cel.Issues) error {
	var lines []string
	for _, e := range issues.Errors() {
		lines = append(lines, fmt.Sprintf("%d:%d: %s", e.Location.Line(), e.Location.Column()+1, strings.ReplaceAll(e.Message, "\n", " ")))
	}
	return fmt.Errorf("compiling it: %s", strings.Join(lines, "; "))
}

// activation has the variables of one request, for one of its users. It makes those that an
// expression names, once.
type activation struct {
	request *Request
	// as is variable user. impersonates says that it is who impersonates the request's.
	as           user.Info
	impersonates bool
	values       map[string]any
}

func (a *activation) ResolveName(name string) (any, bool) {
	if value, ok := a.values[name]; ok {
		return value, true
	}
	var value any
	switch name {
	case varUser:
		value = userVariable(a.as)
	case varRequest:
		value = a.request.variable()
	case varCluster:
		value = a.request.Cluster.variable()
	case varNow:
		value = a.request.Now
	default:
		return nil, false
	}
	if a.values == nil {
		a.values = map[string]any{}
	}
	a.values[name] = value
	return value, true
}

func (a *activation) Parent() cel.Activation { return nil }

// userVariable is empty for a caller whom the hub does not know.
func userVariable(u user.Info) map[string]any {
	if u == nil {
		return map[string]any{"name": "", "uid": "", "groups": []string{}, "extra": map[string][]string{}}
	}
	extra := u.GetExtra()
	if extra == nil {
		extra = map[string][]string{}
	}
	return map[string]any{"name": u.GetName(), "uid": u.GetUID(), "groups": slices.Concat([]string{}, u.GetGroups()), "extra": extra}
}

// variable leaves out what is hidden: an expression that gets at it in a way that the type
// checker does not see, such as dyn(request), has an error in its place.
func (r *Request) variable() map[string]any {
	if r.Sight == Nothing {
		return map[string]any{}
	}
	value := map[string]any{
		"verb": r.Verb, "group": r.Group, "version": r.Version, "resource": r.Resource, "subresource": r.Subresource, "namespace": r.Namespace,
		"name": r.Name, "path": r.Path, "dryRun": r.DryRun, "upgrade": r.Upgrade, "service": r.Service,
	}
	if r.Sight == NoObjects {
		for _, name := range object {
			delete(value, name)
		}
	}
	return value
}

func (c *Cluster) variable() map[string]any {
	value := map[string]any{"name": c.Name, "labels": map[string]string{}, "claims": map[string]string{}, "sets": []string{}}
	if c.Labels != nil {
		value["labels"] = c.Labels
	}
	if c.Claims != nil {
		value["claims"] = c.Claims
	}
	if c.Sets != nil {
		value["sets"] = slices.Concat([]string{}, c.Sets())
	}
	return value
}
