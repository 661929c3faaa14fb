package accesspolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/sets"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Set is all policies. It is immutable, and may be used by several goroutines.
type Set struct{ policies []*Policy }

// NewSet returns the set of some policies, which are asked in the order of their names.
func NewSet(policies []*Policy) *Set {
	return &Set{slices.SortedFunc(slices.Values(policies), func(a, b *Policy) int { return strings.Compare(a.name, b.name) })}
}

// IsEmpty reports whether there is nothing to ask.
func (s *Set) IsEmpty() bool { return len(s.policies) == 0 }

// Decide asks the policies that select a request, until one refuses it. A policy that selects both
// the user and their impersonator is asked about each, until it objects.
func (s *Set) Decide(r *Request) (d Decision) {
	both := [...]activation{{request: r, as: r.User}, {request: r, as: r.Impersonator, impersonates: true}}
	users := both[:1]
	if r.Impersonator != nil {
		users = both[:]
	}
	for _, p := range s.policies {
		if !p.selectsCluster(&r.Cluster) {
			continue
		}
		selected, objection := false, (*Objection)(nil)
		for i := range users {
			if objection == nil && p.selectsUser(users[i].as) {
				selected, objection = true, p.ask(&users[i])
			}
		}
		if selected {
			d.Asked = append(d.Asked, p.name)
		}
		if objection != nil {
			d.Objections = append(d.Objections, objection)
			if objection.Refuses() {
				break
			}
		}
	}
	return d
}

// Clusters selects clusters by name and labels.
type Clusters interface {
	Selects(cluster string, labels map[string]string) bool
}

// Policy is an AccessPolicy that was compiled. It is immutable.
type Policy struct {
	name string
	mode v1alpha1.AccessPolicyMode
	// everybody says that the policy has no subjects.
	everybody     bool
	users, groups sets.Set[string]
	clusters      Clusters // nil selects all
	rules         []rule
}

type rule struct {
	name, message string
	// program is nil if the expression does not compile, for the reason err.
	program cel.Program
	err     error
	// sight is the least that the expression has to see.
	sight Sight
}

// Compile returns the policy of an object, for the clusters that it selects; nil selects all. The
// error says which expressions do not compile. The policy is usable all the same: their rules
// are not true of any request.
func Compile(object *v1alpha1.AccessPolicy, clusters Clusters) (*Policy, error) {
	p := &Policy{name: object.Name, mode: object.Spec.Mode, everybody: len(object.Spec.Subjects) == 0, users: sets.New[string](), groups: sets.New[string](), clusters: clusters}
	for _, subject := range object.Spec.Subjects {
		switch subject.Kind {
		case v1alpha1.SubjectUser:
			p.users.Insert(subject.Name)
		case v1alpha1.SubjectGroup:
			p.groups.Insert(subject.Name)
		case v1alpha1.SubjectServiceAccount:
			p.users.Insert(serviceaccount.MakeUsername(subject.Namespace, subject.Name))
		default: // whom a kind of a later release means is not known
			p.everybody = true
		}
	}
	var errs []error
	for _, r := range object.Spec.Rules {
		compiled := rule{name: r.Name, message: r.Message}
		if compiled.program, compiled.sight, compiled.err = compile(r.Expression); compiled.err != nil {
			errs = append(errs, fmt.Errorf("rule %q: %w", r.Name, compiled.err))
		}
		p.rules = append(p.rules, compiled)
	}
	return p, errors.Join(errs...)
}

// Name is that of the object.
func (p *Policy) Name() string { return p.name }

func (p *Policy) selectsCluster(c *Cluster) bool {
	return p.clusters == nil || p.clusters.Selects(c.Name, c.Labels)
}

func (p *Policy) selectsUser(u user.Info) bool {
	if p.everybody {
		return true
	}
	return u != nil && (p.users.Has(u.GetName()) || len(p.groups) > 0 && p.groups.HasAny(u.GetGroups()...))
}

// ask returns nil if all rules are true.
func (p *Policy) ask(variables *activation) *Objection {
	var spent uint64
	for i := range p.rules {
		r := &p.rules[i]
		if r.err == nil && variables.request.Sight > r.sight {
			return p.objection(r, variables, Hidden, nil)
		}
		isTrue, cost, err := r.evaluate(variables)
		spent += cost
		if err == nil && spent > celconfig.PerCallLimit {
			err = errors.New("its rules cost too much together")
		}
		switch {
		case err != nil:
			return p.objection(r, variables, Failed, err)
		case !isTrue:
			return p.objection(r, variables, NotTrue, nil)
		}
	}
	return nil
}

// evaluate also returns what it cost, in the units of k8s.io/apiserver.
func (r *rule) evaluate(variables *activation) (isTrue bool, cost uint64, err error) {
	if r.err != nil {
		return false, 0, r.err
	}
	value, details, err := r.program.Eval(variables)
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	if err != nil {
		return false, cost, err
	}
	isTrue, ok := value.Value().(bool)
	if !ok {
		return false, cost, fmt.Errorf("its value is no bool but %v", value.Type())
	}
	return isTrue, cost, nil
}

func (p *Policy) objection(r *rule, variables *activation, reason Reason, err error) *Objection {
	o := &Objection{Policy: p.name, Rule: r.name, Mode: p.mode, Reason: reason, Err: err}
	does, whose := "refuses the request", ""
	if variables.impersonates {
		whose = fmt.Sprintf(" of %q, whoever is impersonated,", variables.as.GetName())
	}
	if does += whose; !o.Refuses() {
		does = "would refuse the request" + whose + " if it were enforced"
	}
	switch reason {
	case Failed:
		o.Message = fmt.Sprintf("AccessPolicy %q %s because it cannot be evaluated, rule %q: %v", p.name, does, r.name, err)
		return o
	case Hidden:
		o.Message = fmt.Sprintf("AccessPolicy %q %s because rule %q reads more of requests than this one shows", p.name, does, r.name)
	default:
		o.Message = fmt.Sprintf("AccessPolicy %q %s by rule %q", p.name, does, r.name)
	}
	if r.message != "" {
		o.Message += ": " + r.message
	}
	return o
}
