// Package validate builds each overlay as `kubectl apply -k` does. It reads the result into the API types of
// Kubernetes, where an unknown or misplaced field is an error. It is a module of its own, so that these types are in no
// other go.mod.
package validate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const overlays = "../overlays"

// built is what an overlay makes.
type built struct {
	namespace corev1.Namespace
	account   corev1.ServiceAccount
	set       appsv1.DaemonSet
}

func build(t *testing.T, overlay string) built {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		overlays+"/"+overlay)
	if err != nil {
		t.Fatal(err)
	}
	var b built
	into := map[string]any{"Namespace": &b.namespace, "ServiceAccount": &b.account, "DaemonSet": &b.set}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := into[r.GetKind()]
		delete(into, r.GetKind())
		if object == nil {
			t.Fatalf("%s %s: this test does not know such an object, or has read one already", r.GetKind(), r.GetName())
		}
		if err := decode(text, object); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
	}
	if len(into) > 0 {
		t.Fatalf("overlay %s lacks %v", overlay, into)
	}
	return b
}

// decode reads as the API server does with strict field validation: field names are case-sensitive and occur once.
func decode(text []byte, object any) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(data, object)
	return errors.Join(append(strict, err)...)
}

// all lists the overlays of the directory, so that a new one is tested without being named here.
func all(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(overlays)
	if err != nil || len(entries) < 4 {
		t.Fatalf("%d overlays: %v", len(entries), err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOverlays(t *testing.T) {
	for _, name := range all(t) {
		t.Run(name, func(t *testing.T) {
			b := build(t, name)
			pod := b.set.Spec.Template
			selector, err := metav1.LabelSelectorAsSelector(b.set.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			if selector.Empty() || len(pod.Labels) == 0 ||
				pod.Labels["app.kubernetes.io/name"] != b.set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
				t.Errorf("the selector %v does not select its own pods, labelled %v", selector, pod.Labels)
			}
			if b.set.Namespace != b.namespace.Name || b.account.Namespace != b.namespace.Name ||
				pod.Spec.ServiceAccountName != b.account.Name {
				t.Error("namespace or service account do not belong together")
			}
			for _, complaint := range slices.Concat(leastPrivilege(name, b), mounts(pod.Spec), probes(pod.Spec)) {
				t.Error(complaint)
			}
		})
	}
}

// allowed are the capabilities that every overlay may have.
var allowed = []corev1.Capability{"BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH", "NET_ADMIN"}

// more are capabilities that an overlay adds. Its file gives the reason.
var more = map[string][]corev1.Capability{
	"jvm-profiles": {"SETUID", "SETGID"},
	"pods":         {"SYS_ADMIN"},
}

func leastPrivilege(overlay string, b built) []string {
	var bad []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	spec := b.set.Spec.Template.Spec
	must(len(spec.Containers) == 1 && len(spec.InitContainers) == 0, "there is another container")
	c := spec.Containers[0]
	s := c.SecurityContext
	must(s.Privileged == nil || !*s.Privileged, "it is privileged")
	must(s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation, "it may gain privileges")
	must(s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem, "its root can be written")
	must(s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"it has no seccomp profile")
	must(slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}), "it drops %v, not ALL", s.Capabilities.Drop)
	may := slices.Concat(allowed, more[overlay])
	must(slices.Equal(s.Capabilities.Add, may), "it adds %v; what it does needs %v", s.Capabilities.Add, may)
	must(spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken,
		"it has a token of the cluster")
	must(!spec.HostIPC, "it is in the node's IPC namespace")
	must(!c.Resources.Limits.Memory().IsZero() && !c.Resources.Limits.Cpu().IsZero() && !c.Resources.Requests.Cpu().
		IsZero(), "no resources")
	return bad
}

// mounts finds a volume that is not mounted or does not exist, and a directory of the node that can be written.
func mounts(spec corev1.PodSpec) []string {
	var bad []string
	volumes := map[string]corev1.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		v, ok := volumes[m.Name]
		delete(volumes, m.Name)
		if !ok {
			bad = append(bad, fmt.Sprintf("there is no volume %s", m.Name))
		}
		if v.HostPath != nil && !m.ReadOnly && m.MountPath != "/var/lib/perfdoctor" {
			bad = append(bad, fmt.Sprintf("%s of the node can be written", v.HostPath.Path))
		}
	}
	for name := range volumes {
		bad = append(bad, fmt.Sprintf("nothing mounts the volume %s", name))
	}
	return bad
}

// probes finds a probe that the exporter does not answer.
func probes(spec corev1.PodSpec) []string {
	var bad []string
	c := spec.Containers[0]
	secure := slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--web.config.file=") })
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if secure != (p.HTTPGet.Scheme == corev1.URISchemeHTTPS) {
			bad = append(bad, fmt.Sprintf("the probe of %s and the exporter do not agree on TLS", p.HTTPGet.Path))
		}
		if !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool {
			return port.Name == p.HTTPGet.Port.StrVal
		}) {
			bad = append(bad, fmt.Sprintf("the probe of %s asks an unknown port", p.HTTPGet.Path))
		}
	}
	return bad
}

// TestStrict proves that a misspelt field is found.
func TestStrict(t *testing.T) {
	text, err := os.ReadFile("../base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	misspelt := bytes.Replace(text, []byte("readOnlyRootFilesystem"), []byte("readonlyRootFileSystem"), 1)
	if err := decode(misspelt, &appsv1.DaemonSet{}); err == nil || !strings.Contains(err.Error(),
		"readonlyRootFileSystem") {
		t.Errorf("%v", err)
	}
}
