package admission

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Policy is a ValidatingAdmissionPolicy, as a kube-apiserver compiles it. The test
// knows what its matchConstraints match.
type Policy struct{ validator validating.Validator }

// NewPolicy compiles a policy.
func NewPolicy(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) Policy {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	has := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, variable := range policy.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression}, has, environment.StoredExpressions); result.Error != nil {
			t.Fatalf("policy %s: variable %s: %v", policy.Name, variable.Name, result.Error)
		}
	}
	var conditions, validations []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	compile := func(all []cel.ExpressionAccessor) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(all, has, environment.StoredExpressions)
		for _, err := range evaluator.CompilationErrors() {
			t.Fatalf("policy %s: %v", policy.Name, err)
		}
		return evaluator
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compile(conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	return Policy{validating.NewValidator(compile(validations), matcher, compile(nil), compile(nil), policy.Spec.FailurePolicy, nil)}
}

// Refusal is why the policy refuses a request, or empty. A parameter is nil for a policy that has none.
func (p Policy) Refusal(t *testing.T, request admission.Attributes, parameter map[string]any, rights authorizer.Authorizer) string {
	t.Helper()
	var params runtime.Object
	if parameter != nil {
		params = &unstructured.Unstructured{Object: parameter}
	}
	versioned := &admission.VersionedAttributes{Attributes: request, VersionedKind: request.GetKind(), VersionedObject: admission.NewLazyObject(request.GetObject()), VersionedOldObject: admission.NewLazyObject(request.GetOldObject())}
	result := p.validator.Validate(t.Context(), request.GetResource(), versioned, params, nil, celconfig.RuntimeCELCostBudget, rights)
	for _, decision := range result.Decisions {
		if decision.Action == validating.ActionDeny {
			if decision.Reason != metav1.StatusReasonForbidden {
				t.Errorf("refused as %s, want %s: %s", decision.Reason, metav1.StatusReasonForbidden, decision.Message)
			}
			return decision.Message
		}
	}
	return ""
}
