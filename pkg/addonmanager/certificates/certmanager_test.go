package certificates

import (
	"context"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// certManagerSchema is that of a kind in cert-manager's own definitions.
func certManagerSchema(t *testing.T, kind string) *apiextensions.JSONSchemaProps {
	t.Helper()
	raw, err := os.ReadFile("testdata/cert-manager-" + strings.ToLower(kind) + "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &definition); err != nil {
		t.Fatal(err)
	}
	for _, version := range definition.Spec.Versions {
		if definition.Spec.Group+"/"+version.Name == certManagerVersion && definition.Spec.Names.Kind == kind && version.Served {
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
				t.Fatal(err)
			}
			return &internal
		}
	}
	t.Fatalf("cert-manager does not serve %s %s", certManagerVersion, kind)
	return nil
}

// TestCertManagerObjectsFitItsDefinitions wants objects that cert-manager's definitions
// allow, with no field that they do not have.
func TestCertManagerObjectsFitItsDefinitions(t *testing.T) {
	for _, source := range []CertManager{
		{Namespace: hubNamespace},
		{Namespace: hubNamespace, IssuerName: "vault", IssuerKind: "ClusterIssuer"},
		{Namespace: hubNamespace, IssuerName: "pca", IssuerKind: "AWSPCAIssuer", IssuerGroup: "awspca.cert-manager.io"},
	} {
		for _, ca := range []CAName{HubCA, AgentCA} {
			for _, object := range source.objects(ca) {
				definition := certManagerSchema(t, object.GetKind())
				validator, _, err := validation.NewSchemaValidator(definition)
				if err != nil {
					t.Fatal(err)
				}
				if problems := validation.ValidateCustomResource(nil, object.Object, validator); len(problems) > 0 {
					t.Errorf("%s %s: %v, want no problems", object.GetKind(), object.GetName(), problems)
				}
				structural, err := structuralschema.NewStructural(definition)
				if err != nil {
					t.Fatal(err)
				}
				unknown := pruning.PruneWithOptions(object.DeepCopy().Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
				if len(unknown) > 0 {
					t.Errorf("%s %s has fields that cert-manager does not: %v", object.GetKind(), object.GetName(), unknown)
				}
			}
		}
	}
}

// certManagerHub is a hub with or without cert-manager's kinds.
func certManagerHub(t *testing.T, installed bool, applied map[string]*unstructured.Unstructured) client.Client {
	t.Helper()
	return interceptor.NewClient(newClient().(client.WithWatch), interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, configuration runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			if !installed {
				return &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "cert-manager.io", Kind: "Issuer"}}
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
			if err != nil {
				return err
			}
			object := &unstructured.Unstructured{Object: content}
			applied[object.GetKind()+"/"+object.GetName()] = object
			return nil
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return c.Get(ctx, key, object, options...)
			}
			u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "message": "the issuer is on holiday"}}}
			return nil
		},
	})
}

func TestCertManagerIsWaitedFor(t *testing.T) {
	p := rotating("", &clusters{})
	without := certManagerHub(t, false, nil)
	p.Source = CertManager{Client: without, Namespace: hubNamespace}
	if _, err := Ensure(t.Context(), without, p, start); err == nil || !strings.Contains(err.Error(), "needs cert-manager") {
		t.Errorf("without cert-manager: error %v, want one that says needs cert-manager", err)
	}
	applied := map[string]*unstructured.Unstructured{}
	c := certManagerHub(t, true, applied)
	p.Source = CertManager{Client: c, Namespace: hubNamespace}
	if _, err := Ensure(t.Context(), c, p, start); err == nil || !strings.Contains(err.Error(), "the issuer is on holiday") {
		t.Errorf("before cert-manager has answered: %v", err)
	}
	for _, name := range []string{CertManagerHubCA, CertManagerAgentCA} {
		secret, _ := caSecret(t, name, [2]string{"tls.crt", "tls.key"})
		if err := c.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if result := ensure(t, c, p, start); len(result.Expiry) != 5 {
		t.Errorf("with cert-manager's answer: %+v, want 5 certificates", result)
	}
	for _, name := range []string{"Issuer/" + certManagerIssuer, "Certificate/" + CertManagerHubCA, "Certificate/" + CertManagerAgentCA} {
		if applied[name] == nil {
			t.Errorf("%s was not asked for", name)
		}
	}
}
