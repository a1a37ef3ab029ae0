// Judge says what the filter plugins of kube-scheduler's default profile answer for pods on nodes.
//
// Each line of standard input is a cluster as the API server would list it, {"objects": [...]}, and
// pods to try on it, {"tried": [...]}; each line of standard output is the answer. The plugins, their
// order and their configuration are those of the Kubernetes version that this module requires; only
// the API server is made up, of the objects that were given. Pods get the API server's defaults and
// must pass its validation.
//
// Every plugin is asked, also after another has refused, so that one rule can be compared alone. The
// framework itself, which stops at the first refusal, is run too, and both must agree.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	resourceinformers "k8s.io/client-go/informers/resource"
	storageinformers "k8s.io/client-go/informers/storage"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

type question struct {
	Objects []json.RawMessage `json:"objects"`
	Tried   []*v1.Pod         `json:"tried"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	// Plugins with a say: every filter, and what keeps a pod out of the queue.
	Plugins []string `json:"plugins,omitempty"`
	// Pods with the defaults of the API server: all of the cluster, and those tried.
	Pods  []*v1.Pod `json:"pods,omitempty"`
	Tried []verdict `json:"tried,omitempty"`
}

type verdict struct {
	Pod *v1.Pod `json:"pod"`
	// By node; a node without any takes the pod.
	Refusals map[string][]refusal `json:"refusals"`
}

type refusal struct {
	Plugin string `json:"plugin"`
	Words  string `json:"words"`
}

func main() {
	metrics.Register()
	klog.SetLogger(logr.Discard())
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) == 0 && errors.Is(err, io.EOF) {
			return
		}
		given, err := judge(line)
		if err != nil {
			given = &answer{Error: err.Error()}
		}
		if err := output.Encode(given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func judge(line []byte) (*answer, error) {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, fmt.Errorf("question: %w", err)
	}
	lists, err := listed(asked.Objects)
	if err != nil {
		return nil, err
	}
	nodes, err := decoded[v1.Node](lists["nodes"])
	if err != nil {
		return nil, err
	}
	pods, err := decoded[v1.Pod](lists["pods"])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, pod := range append(append([]*v1.Pod{}, pods...), asked.Tried...) {
		if err := admit(ctx, pod); err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	lists["pods"] = nil
	for _, pod := range pods {
		raw, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		lists["pods"] = append(lists["pods"], raw)
	}
	profile, err := newProfile(ctx, lists, assigned(pods), nodes)
	if err != nil {
		return nil, err
	}
	defer profile.factory.Shutdown()
	defer cancel()
	given := &answer{Plugins: profile.names(), Pods: pods}
	for _, pod := range asked.Tried {
		refusals, err := profile.try(ctx, pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		given.Tried = append(given.Tried, verdict{pod, refusals})
	}
	return given, nil
}

// assigned returns the pods that the scheduler counts: on a node, and not ended.
func assigned(pods []*v1.Pod) []*v1.Pod {
	var found []*v1.Pod
	for _, pod := range pods {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if pod.Spec.NodeName != "" && !ended {
			found = append(found, pod)
		}
	}
	return found
}

// admit makes of the pod what the API server would store: its defaults, what its strategy derives
// from other fields, and its validation. The status stays.
func admit(ctx context.Context, pod *v1.Pod) error {
	corev1.SetObjectDefaults_Pod(pod)
	var internal core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil); err != nil {
		return err
	}
	podregistry.Strategy.PrepareForCreate(ctx, &internal)
	if err := podregistry.Strategy.Validate(ctx, &internal).ToAggregate(); err != nil {
		return err
	}
	var made v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(&internal, &made, nil); err != nil {
		return err
	}
	pod.Spec = made.Spec
	return nil
}

// --- the API server: lists of what was given, and watches without events ---

// resources has the plural of every kind that a question may contain.
var resources = map[string]string{
	"Pod": "pods", "Node": "nodes", "Namespace": "namespaces",
	"PersistentVolume": "persistentvolumes", "PersistentVolumeClaim": "persistentvolumeclaims",
	"StorageClass": "storageclasses", "CSINode": "csinodes", "CSIDriver": "csidrivers",
	"CSIStorageCapacity": "csistoragecapacities", "VolumeAttachment": "volumeattachments",
	"ResourceClaim": "resourceclaims", "ResourceSlice": "resourceslices",
	"DeviceClass": "deviceclasses", "DeviceTaintRule": "devicetaintrules",
}

// notRead are kinds that no filter reads; the planner may.
var notRead = sets.New("ResourceClaimTemplate")

func listed(objects []json.RawMessage) (map[string][]json.RawMessage, error) {
	lists := map[string][]json.RawMessage{}
	for _, object := range objects {
		var kind metav1.TypeMeta
		if err := json.Unmarshal(object, &kind); err != nil {
			return nil, err
		}
		if notRead.Has(kind.Kind) {
			continue
		}
		resource, known := resources[kind.Kind]
		if !known {
			return nil, fmt.Errorf("kind %q: add it to the judge's resources", kind.Kind)
		}
		lists[resource] = append(lists[resource], object)
	}
	return lists, nil
}

func decoded[T any](raw []json.RawMessage) ([]*T, error) {
	var found []*T
	for _, each := range raw {
		object := new(T)
		if err := json.Unmarshal(each, object); err != nil {
			return nil, err
		}
		found = append(found, object)
	}
	return found, nil
}

type server map[string][]json.RawMessage

func (lists server) RoundTrip(request *http.Request) (*http.Response, error) {
	path := request.URL.Path
	made := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Request:    request,
	}
	query := request.URL.Query()
	if query.Get("sendInitialEvents") != "" { // the reflector then asks for a list
		made.StatusCode = http.StatusUnprocessableEntity
		made.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
		return made, nil
	}
	if query.Get("watch") != "" {
		made.Body = silence{request.Context()}
		return made, nil
	}
	items := lists[path[strings.LastIndex(path, "/")+1:]]
	if items == nil {
		items = []json.RawMessage{}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": metav1.ListMeta{ResourceVersion: "1"},
		"items":    items,
	})
	if err != nil {
		return nil, err
	}
	made.Body = io.NopCloser(bytes.NewReader(body))
	return made, nil
}

// silence is the body of a watch in which nothing happens until its request is cancelled.
type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}

func (s silence) Close() error { return nil }

// --- informers whose handlers can be waited for ---
//
// Plugins keep caches of what their handlers were told, and register those handlers themselves.

type tracked struct {
	informers.SharedInformerFactory
	lock          sync.Mutex
	registrations []cache.ResourceEventHandlerRegistration
}

func (f *tracked) InformerFor(object runtime.Object, make internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.SharedInformerFactory.InformerFor(object, func(client clientset.Interface, resync time.Duration) cache.SharedIndexInformer {
		return &trackedInformer{make(client, resync), f}
	})
}

func (f *tracked) Core() coreinformers.Interface {
	return coreinformers.New(f, metav1.NamespaceAll, nil)
}

func (f *tracked) Storage() storageinformers.Interface {
	return storageinformers.New(f, metav1.NamespaceAll, nil)
}

func (f *tracked) Resource() resourceinformers.Interface {
	return resourceinformers.New(f, metav1.NamespaceAll, nil)
}

// sync starts all informers and returns once every handler has seen every object.
func (f *tracked) sync(ctx context.Context) error {
	f.StartWithContext(ctx)
	f.WaitForCacheSyncWithContext(ctx)
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, each := range f.registrations {
		if !cache.WaitFor(ctx, "", each.HasSyncedChecker()) {
			return context.Cause(ctx)
		}
	}
	return ctx.Err()
}

type trackedInformer struct {
	cache.SharedIndexInformer
	factory *tracked
}

func (i *trackedInformer) keep(made cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		i.factory.lock.Lock()
		defer i.factory.lock.Unlock()
		i.factory.registrations = append(i.factory.registrations, made)
	}
	return made, err
}

func (i *trackedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.keep(i.SharedIndexInformer.AddEventHandler(handler))
}

func (i *trackedInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.keep(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler, resync))
}

func (i *trackedInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.keep(i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options))
}

// --- the default profile over one cluster ---

type profile struct {
	framework framework.Framework
	factory   *tracked
	snapshot  *internalcache.Snapshot
	plugins   map[string]fwk.Plugin
	enabled   *schedulerapi.Plugins
}

// newProfile does what scheduler.New does, for one question.
func newProfile(ctx context.Context, lists server, pods []*v1.Pod, nodes []*v1.Node) (*profile, error) {
	client, err := clientset.NewForConfig(&rest.Config{
		Host:          "http://judge",
		Transport:     lists,
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	})
	if err != nil {
		return nil, err
	}
	factory := &tracked{SharedInformerFactory: informers.NewSharedInformerFactory(client, 0)}
	slices, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		EnableDeviceTaintRules:   true,
		EnableConsumableCapacity: true,
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		TaintInformer:            factory.Resource().V1().DeviceTaintRules(),
	})
	if err != nil {
		return nil, err
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	devices := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	classes := devices.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache)
	if _, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(classes); err != nil {
		return nil, err
	}
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var configured schedulerapi.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &configured, nil); err != nil {
		return nil, err
	}
	made := &profile{
		factory:  factory,
		snapshot: internalcache.NewSnapshot(pods, nodes),
		plugins:  map[string]fwk.Plugin{},
	}
	registry := frameworkplugins.NewInTreeRegistry()
	for name, create := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := create(ctx, args, handle)
			made.plugins[name] = plugin
			return plugin, err
		}
	}
	made.framework, err = frameworkruntime.NewFramework(ctx, registry, &configured.Profiles[0],
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(devices),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(made.snapshot),
		frameworkruntime.WithMutableSnapshotLister(made.snapshot),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	made.enabled = made.framework.ListPlugins()
	return made, factory.sync(ctx)
}

// names returns the plugins that can refuse a pod, in the order in which they are asked.
func (p *profile) names() []string {
	var found []string
	known := sets.New[string]()
	for _, set := range []schedulerapi.PluginSet{p.enabled.PreEnqueue, p.enabled.PreFilter, p.enabled.Filter} {
		for _, each := range set.Enabled {
			if !known.Has(each.Name) {
				known.Insert(each.Name)
				found = append(found, each.Name)
			}
		}
	}
	return found
}

// try asks every plugin about the pod on every node.
func (p *profile) try(ctx context.Context, pod *v1.Pod) (map[string][]refusal, error) {
	nodes, err := p.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	var everywhere []refusal
	for _, plugin := range p.framework.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			everywhere = append(everywhere, refusal{plugin.Name(), status.Message()})
		}
	}
	skipped := sets.New[string]()
	only := map[string]sets.Set[string]{}
	for _, each := range p.enabled.PreFilter.Enabled {
		result, status := p.plugins[each.Name].(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, nodes)
		switch {
		case status.IsSkip():
			skipped.Insert(each.Name)
		case status.IsRejected():
			skipped.Insert(each.Name)
			everywhere = append(everywhere, refusal{each.Name, status.Message()})
		case !status.IsSuccess():
			return nil, fmt.Errorf("PreFilter of %s: %w", each.Name, status.AsError())
		case !result.AllNodes():
			only[each.Name] = result.NodeNames
		}
	}
	state.SetSkipFilterPlugins(skipped)
	refusals := map[string][]refusal{}
	for _, node := range nodes {
		name := node.Node().Name
		found := append([]refusal{}, everywhere...)
		for _, each := range p.enabled.Filter.Enabled {
			if skipped.Has(each.Name) {
				continue
			}
			status := p.plugins[each.Name].(fwk.FilterPlugin).Filter(ctx, state, pod, node)
			names, isNarrowed := only[each.Name]
			switch {
			case status.IsRejected():
				found = append(found, refusal{each.Name, status.Message()})
			case !status.IsSuccess():
				return nil, fmt.Errorf("Filter of %s on %s: %w", each.Name, name, status.AsError())
			case isNarrowed && !names.Has(name):
				found = append(found, refusal{each.Name, "its PreFilter left the node out"})
			}
		}
		refusals[name] = found
	}
	return refusals, p.check(ctx, pod, nodes, refusals)
}

// check runs the framework's own way, which must come to the same answer on every node.
func (p *profile) check(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, refusals map[string][]refusal) error {
	var enqueued *fwk.Status
	for _, plugin := range p.framework.PreEnqueuePlugins() {
		if enqueued = plugin.PreEnqueue(ctx, pod); !enqueued.IsSuccess() {
			break
		}
	}
	state := framework.NewCycleState()
	result, filtered, _ := p.framework.RunPreFilterPlugins(ctx, state, pod)
	for _, node := range nodes {
		name := node.Node().Name
		takes := enqueued.IsSuccess() && filtered.IsSuccess() && (result.AllNodes() || result.NodeNames.Has(name))
		words := "refused before the filters: " + enqueued.Message() + filtered.Message()
		if takes {
			status := p.framework.RunFilterPlugins(ctx, state, pod, node)
			takes, words = status.IsSuccess(), status.Message()
		}
		if takes != (len(refusals[name]) == 0) {
			return fmt.Errorf("on %s the framework says %t (%s), its plugins one by one %v", name, takes, words, refusals[name])
		}
	}
	return nil
}
