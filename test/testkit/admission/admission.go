// Package admission does with a custom resource what a kube-apiserver does before it stores
// one, with the CustomResourceDefinition alone. Unknown fields are errors, as with
// kubectl's --validate=strict.
//
// Policy decides about requests as a ValidatingAdmissionPolicy does.
//
// OfModule reads definitions of others from their Go modules, which the nested module in
// folder modules pins: they need other versions of Kubernetes' modules than we do.
package admission

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is that of one version of a kind.
type Schema struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// New reads a CustomResourceDefinition, which a kube-apiserver must accept.
func New(t *testing.T, definition []byte, version string) Schema {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		t.Fatal("reading a CustomResourceDefinition:", err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			internal.Status.StoredVersions = []string{v.Name}
		}
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
		t.Fatalf("a kube-apiserver refuses %s: %v", crd.Name, errs.ToAggregate())
	}
	properties, err := apiextensions.GetSchemaForVersion(&internal, version)
	if err != nil {
		t.Fatal(err)
	}
	s := Schema{}
	if s.structural, err = schema.NewStructural(properties.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}
	if s.validator, _, err = validation.NewSchemaValidator(properties.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s
}

// Decode reads YAML as a kube-apiserver does, which knows whole numbers.
func Decode(t *testing.T, document []byte) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Admit sets the defaults of an object and returns why it is refused.
func (s Schema) Admit(t *testing.T, object map[string]any) (errs field.ErrorList) {
	t.Helper()
	for _, path := range pruning.PruneWithOptions(object, s.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "there is no such field"))
	}
	defaulting.Default(object, s.structural)
	errs = append(errs, validation.ValidateCustomResource(nil, object, s.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	ruled, _ := s.rules.Validate(t.Context(), nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, ruled...)
}

// OfModule returns a file of one of the pinned modules.
func OfModule(t *testing.T, module, file string) []byte {
	t.Helper()
	_, source, _, _ := runtime.Caller(0)
	folder := filepath.Join(filepath.Dir(source), "modules")
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), folder, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mod", "download", module)
	content, err := os.ReadFile(filepath.Join(run("list", "-m", "-f", "{{.Dir}}", module), file))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
