package apigroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apirest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/rest"

	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

const (
	// StoredRegistries are what ResourceRegistries are stored as.
	StoredRegistries = "karmadaresourceregistries"
	// ManagedFieldsKey is an annotation of a stored registry, with the managedFields of the
	// ResourceRegistry: the hub's kube-apiserver has others of the stored one, all ours.
	ManagedFieldsKey = "proxy.open-cluster-management.io/managed-fields"
	// maxConflicts is how often an update is tried that may be of any version.
	maxConflicts = 5
)

// registryStorage stores ResourceRegistries as KarmadaResourceRegistries. The user's right
// was asked for before; the objects are read and written as the proxy API itself.
type registryStorage struct{ store rest.Interface }

var (
	_ apirest.StandardStorage      = &registryStorage{}
	_ apirest.Scoper               = &registryStorage{}
	_ apirest.SingularNameProvider = &registryStorage{}
)

func (s *registryStorage) New() runtime.Object     { return &karmadav1alpha1.ResourceRegistry{} }
func (s *registryStorage) NewList() runtime.Object { return &karmadav1alpha1.ResourceRegistryList{} }
func (s *registryStorage) Destroy()                {}
func (s *registryStorage) NamespaceScoped() bool   { return false }
func (s *registryStorage) GetSingularName() string { return "resourceregistry" }

// served returns the registry that is stored as an object.
func served(stored *proxyv1alpha1.KarmadaResourceRegistry) *karmadav1alpha1.ResourceRegistry {
	registry := &karmadav1alpha1.ResourceRegistry{ObjectMeta: *stored.ObjectMeta.DeepCopy(), Spec: *stored.Spec.DeepCopy(), Status: *stored.Status.DeepCopy()}
	registry.ManagedFields = nil
	if text, ok := registry.Annotations[ManagedFieldsKey]; ok {
		if json.Unmarshal([]byte(text), &registry.ManagedFields) != nil {
			registry.ManagedFields = nil // somebody else wrote them
		}
		delete(registry.Annotations, ManagedFieldsKey)
		if len(registry.Annotations) == 0 {
			registry.Annotations = nil
		}
	}
	return registry
}

// stored returns the object that a registry is stored as.
func stored(registry *karmadav1alpha1.ResourceRegistry) (*proxyv1alpha1.KarmadaResourceRegistry, error) {
	object := &proxyv1alpha1.KarmadaResourceRegistry{ObjectMeta: *registry.ObjectMeta.DeepCopy(), Spec: *registry.Spec.DeepCopy()}
	object.APIVersion, object.Kind = proxyv1alpha1.GroupVersion.String(), "KarmadaResourceRegistry"
	if object.Spec.ResourceSelectors == nil {
		object.Spec.ResourceSelectors = []proxyv1alpha1.RegistrySelector{}
	}
	object.ManagedFields = nil
	delete(object.Annotations, ManagedFieldsKey)
	if len(registry.ManagedFields) > 0 {
		text, err := json.Marshal(registry.ManagedFields)
		if err != nil {
			return nil, fmt.Errorf("encoding managedFields: %w", err)
		}
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, ManagedFieldsKey, string(text))
	}
	return object, nil
}

// renamed is an error of the store about the registry that it stores.
func renamed(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	named := *status
	named.ErrStatus = renamedStatus(status.ErrStatus)
	return &named
}

func renamedStatus(status metav1.Status) metav1.Status {
	for from, to := range map[string]string{
		StoredRegistries + "." + proxyv1alpha1.GroupVersion.Group:     karmadav1alpha1.Registries + "." + karmadav1alpha1.SearchGroupVersion.Group,
		"KarmadaResourceRegistry." + proxyv1alpha1.GroupVersion.Group: "ResourceRegistry." + karmadav1alpha1.SearchGroupVersion.Group,
	} {
		status.Message = strings.ReplaceAll(status.Message, from, to)
	}
	if details := status.Details; details != nil {
		status.Details = details.DeepCopy()
		status.Details.Group = karmadav1alpha1.SearchGroupVersion.Group
		status.Details.Kind = strings.NewReplacer(StoredRegistries, karmadav1alpha1.Registries, "KarmadaResourceRegistry", "ResourceRegistry").Replace(details.Kind)
	}
	return status
}

// do sends a request to the store.
func do(ctx context.Context, r *rest.Request) (*karmadav1alpha1.ResourceRegistry, error) {
	object := &proxyv1alpha1.KarmadaResourceRegistry{}
	if err := r.Do(ctx).Into(object); err != nil {
		return nil, renamed(err)
	}
	return served(object), nil
}

// Get reads a registry.
func (s *registryStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	registry, err := do(ctx, s.store.Get().Resource(StoredRegistries).Name(name).VersionedParams(options, metav1.ParameterCodec))
	if err != nil {
		return nil, err
	}
	return registry, nil
}

// selecting is a request for the registries that options select.
func selecting(r *rest.Request, options *internalversion.ListOptions) (*rest.Request, error) {
	external := &metav1.ListOptions{}
	if options != nil {
		if err := internalversion.Convert_internalversion_ListOptions_To_v1_ListOptions(options, external, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return r.Resource(StoredRegistries).VersionedParams(external, metav1.ParameterCodec), nil
}

// List reads registries.
func (s *registryStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	r, err := selecting(s.store.Get(), options)
	if err != nil {
		return nil, err
	}
	objects := &proxyv1alpha1.KarmadaResourceRegistryList{}
	if err := r.Do(ctx).Into(objects); err != nil {
		return nil, renamed(err)
	}
	list := &karmadav1alpha1.ResourceRegistryList{ListMeta: objects.ListMeta, Items: []karmadav1alpha1.ResourceRegistry{}}
	for i := range objects.Items {
		list.Items = append(list.Items, *served(&objects.Items[i]))
	}
	return list, nil
}

// Watch follows registries.
func (s *registryStorage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	r, err := selecting(s.store.Get(), options)
	if err != nil {
		return nil, err
	}
	events, err := r.Param("watch", "true").Watch(ctx)
	if err != nil {
		return nil, renamed(err)
	}
	w := &RegistryWatch{Stored: events, Served: make(chan watch.Event), Stopped: make(chan struct{})}
	go w.Run()
	return w, nil
}

// RegistryWatch is a watch of stored registries that shows the served ones. watch.Filter
// leaks its goroutine if it is stopped while nobody reads.
type RegistryWatch struct {
	Stored  watch.Interface
	Served  chan watch.Event
	stop    sync.Once
	Stopped chan struct{}
}

func (w *RegistryWatch) Run() {
	defer close(w.Served)
	defer w.Stored.Stop()
	for event := range w.Stored.ResultChan() {
		if object, ok := event.Object.(*proxyv1alpha1.KarmadaResourceRegistry); ok {
			event.Object = served(object)
		}
		select {
		case w.Served <- event:
		case <-w.Stopped:
			return
		}
	}
}

func (w *RegistryWatch) ResultChan() <-chan watch.Event { return w.Served }

func (w *RegistryWatch) Stop() {
	w.stop.Do(func() {
		close(w.Stopped)
		w.Stored.Stop()
	})
}

// Create makes a registry.
func (s *registryStorage) Create(ctx context.Context, object runtime.Object, validate apirest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	body, err := stored(object.(*karmadav1alpha1.ResourceRegistry))
	if err != nil {
		return nil, err
	}
	registry, err := do(ctx, s.store.Post().Resource(StoredRegistries).VersionedParams(&metav1.CreateOptions{DryRun: options.DryRun}, metav1.ParameterCodec).Body(body))
	if err != nil {
		return nil, err
	}
	return registry, nil
}

// Update changes a registry. One of no version is tried again after a conflict.
func (s *registryStorage) Update(ctx context.Context, name string, info apirest.UpdatedObjectInfo, createValidation apirest.ValidateObjectFunc,
	updateValidation apirest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (object runtime.Object, created bool, err error) {
	for range maxConflicts {
		object, created, err = s.update(ctx, name, info, createValidation, updateValidation, forceAllowCreate, options)
		if !errors.Is(err, errOutdated) {
			return object, created, err
		}
	}
	return nil, false, apierrors.NewConflict(karmadav1alpha1.SearchGroupVersion.WithResource(karmadav1alpha1.Registries).GroupResource(), name, err)
}

// errOutdated is the error of an update of no version, of what has changed meanwhile.
var errOutdated = errors.New("the registry has changed meanwhile")

func (s *registryStorage) update(ctx context.Context, name string, info apirest.UpdatedObjectInfo, createValidation apirest.ValidateObjectFunc,
	updateValidation apirest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	before, err := s.Get(ctx, name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) && forceAllowCreate {
		updated, err := info.UpdatedObject(ctx, s.New())
		if err != nil {
			return nil, false, err
		}
		made, err := s.Create(ctx, updated, createValidation, &metav1.CreateOptions{DryRun: options.DryRun})
		return made, true, err
	}
	if err != nil {
		return nil, false, err
	}
	updated, err := info.UpdatedObject(ctx, before.DeepCopyObject())
	if err == nil && updateValidation != nil {
		err = updateValidation(ctx, updated.DeepCopyObject(), before)
	}
	if err != nil {
		return nil, false, err
	}
	registry := updated.(*karmadav1alpha1.ResourceRegistry)
	anyVersion := registry.ResourceVersion == ""
	if anyVersion {
		registry.ResourceVersion = before.(*karmadav1alpha1.ResourceRegistry).ResourceVersion
	}
	if p := info.Preconditions(); p != nil && p.UID != nil {
		registry.UID = *p.UID // the store compares it
	}
	body, err := stored(registry)
	if err != nil {
		return nil, false, err
	}
	after, err := do(ctx, s.store.Put().Resource(StoredRegistries).Name(name).VersionedParams(&metav1.UpdateOptions{DryRun: options.DryRun}, metav1.ParameterCodec).Body(body))
	switch {
	case apierrors.IsConflict(err) && anyVersion:
		return nil, false, errOutdated
	case err != nil:
		return nil, false, err
	}
	return after, false, nil
}

// Delete deletes a registry. The second result is false while something holds it.
func (s *registryStorage) Delete(ctx context.Context, name string, validate apirest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	before, err := s.Get(ctx, name, &metav1.GetOptions{})
	if err == nil && validate != nil {
		err = validate(ctx, before)
	}
	if err != nil {
		return nil, false, err
	}
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, false, fmt.Errorf("encoding the options: %w", err)
	}
	answer, err := s.store.Delete().Resource(StoredRegistries).Name(name).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Get()
	if err != nil {
		return nil, false, renamed(err)
	}
	switch o := answer.(type) {
	case *metav1.Status:
		status := renamedStatus(*o)
		return &status, true, nil
	case *proxyv1alpha1.KarmadaResourceRegistry:
		return served(o), false, nil
	}
	return before, true, nil
}

// DeleteCollection deletes the registries that options select.
func (s *registryStorage) DeleteCollection(ctx context.Context, validate apirest.ValidateObjectFunc, options *metav1.DeleteOptions, selection *internalversion.ListOptions) (runtime.Object, error) {
	list, err := s.List(ctx, selection)
	if err != nil {
		return nil, err
	}
	deleted := &karmadav1alpha1.ResourceRegistryList{Items: []karmadav1alpha1.ResourceRegistry{}}
	for _, registry := range list.(*karmadav1alpha1.ResourceRegistryList).Items {
		if _, _, err := s.Delete(ctx, registry.Name, validate, options.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		deleted.Items = append(deleted.Items, registry)
	}
	return deleted, nil
}

var registryColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the registry"},
	{Name: "Valid", Type: "string", Description: "False while the registry serves nothing"},
	{Name: "Age", Type: "string", Description: "Age of the registry"},
}

// ConvertToTable is what kubectl get shows.
func (s *registryStorage) ConvertToTable(_ context.Context, object runtime.Object, options runtime.Object) (*metav1.Table, error) {
	table := newTable(registryColumns, options)
	var items []karmadav1alpha1.ResourceRegistry
	switch o := object.(type) {
	case *karmadav1alpha1.ResourceRegistry:
		items = []karmadav1alpha1.ResourceRegistry{*o}
		table.ResourceVersion = o.ResourceVersion
	case *karmadav1alpha1.ResourceRegistryList:
		items = o.Items
		table.ListMeta = o.ListMeta
	default:
		return nil, fmt.Errorf("making a table of %T: it is no ResourceRegistry", object)
	}
	for i := range items {
		valid := metav1.ConditionUnknown
		for _, condition := range items[i].Status.Conditions {
			if condition.Type == proxyv1alpha1.ConditionTypeRegistryValid {
				valid = condition.Status
			}
		}
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: &items[i]}, Cells: []any{items[i].Name, string(valid), ageOf(items[i].ObjectMeta)}})
	}
	return table, nil
}

// NewStore returns a client for what ResourceRegistries are stored as.
func NewStore(hub *rest.Config) (rest.Interface, error) {
	config := rest.CopyConfig(hub)
	config.APIPath, config.GroupVersion = "/apis", &proxyv1alpha1.GroupVersion
	config.ContentConfig.ContentType = runtime.ContentTypeJSON // custom resources have no other
	config.NegotiatedSerializer = scope.Codecs.WithoutConversion()
	store, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	return store, nil
}
