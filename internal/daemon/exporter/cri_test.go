package exporter

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/perfdoctor/perfdoctor/internal/host"
)

// runtimeServer is a container runtime of one pod, and of a container that somebody else started.
type runtimeServer struct {
	cri.UnimplementedRuntimeServiceServer
	hang chan struct{} // nil: it answers
}

const foreignID = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

func (s *runtimeServer) ListContainers(ctx context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse,
	error,
) {
	if s.hang != nil {
		select {
		case <-s.hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	answer := &cri.ListContainersResponse{}
	for _, c := range []*cri.Container{
		{Id: containerID, Labels: map[string]string{
			"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web-7d9f",
			"io.kubernetes.container.name": "nginx",
		}},
		{Id: foreignID, Labels: map[string]string{"com.docker.compose.project": "x"}},
	} {
		if strings.HasPrefix(c.GetId(), r.GetFilter().GetId()) {
			answer.Containers = append(answer.Containers, c)
		}
	}
	return answer, nil
}

// serveRuntime serves on a socket of the test until the test ends.
func serveRuntime(t *testing.T, s *runtimeServer) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "cri.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	must(t, err)
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-served)
	})
	return socket
}

func dialed(t *testing.T, socket string) *Runtime {
	t.Helper()
	r, err := DialRuntime(socket)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// TestRuntimeNames: a container runtime knows the pod of a container. If it does not, cannot answer or is absent, the
// kubelet's links tell, and finally the control group.
func TestRuntimeNames(t *testing.T) {
	logs := t.TempDir()
	must(t, os.WriteFile(filepath.Join(logs, "linked_shop_php-"+foreignID+".log"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(logs, "linked_shop_nginx-"+containerID+".log"), nil, 0o600))
	path := func(id string) host.Target {
		return host.Target{Name: "/kubepods.slice/cri-containerd-" + id + ".scope"}
	}
	hanging := &runtimeServer{hang: make(chan struct{})}
	t.Cleanup(func() { close(hanging.hang) })
	answering, stuck := dialed(t, "unix://"+serveRuntime(t, &runtimeServer{})), dialed(t, serveRuntime(t, hanging))
	stuck.wait = 50 * time.Millisecond
	absent := dialed(t, filepath.Join(t.TempDir(), "none.sock"))
	unknown := strings.Repeat("0", 64)
	for name, tc := range map[string]struct {
		runtime *Runtime
		target  host.Target
		want    string
		log     string
	}{
		"of a pod":         {answering, path(containerID), "pod shop/web-7d9f/nginx", ""},
		"of somebody else": {answering, path(foreignID), "pod shop/linked/php", ""},
		"unknown":          {answering, path(unknown), "cgroup " + path(unknown).Name, ""},
		"no container": {
			answering,
			host.Target{Name: "/system.slice/x.service"},
			"cgroup /system.slice/x.service", "",
		},
		"the runtime hangs":    {stuck, path(containerID), "pod shop/linked/nginx", "deadline exceeded"},
		"there is no runtime":  {absent, path(containerID), "pod shop/linked/nginx", "none.sock"},
		"no runtime was given": {nil, path(containerID), "pod shop/linked/nginx", ""},
	} {
		var log bytes.Buffer
		names := PodNames{Logs: logs, Runtime: tc.runtime}
		got := names.nameOf(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), tc.target)
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if !strings.Contains(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
			t.Errorf("%s: it logs %q, want %q", name, log.String(), tc.log)
		}
	}
}

// TestRuntimeRefuses: a server without the interface, and one that does not speak gRPC, cost a name and say why.
func TestRuntimeRefuses(t *testing.T) {
	dir := t.TempDir()
	serve := func(name string, serve func(net.Listener)) *Runtime {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, name))
		must(t, err)
		go serve(l)
		return dialed(t, filepath.Join(dir, name))
	}
	empty := grpc.NewServer()
	t.Cleanup(empty.Stop)
	web := &http.Server{Protocols: new(http.Protocols), ReadHeaderTimeout: time.Second}
	web.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { must(t, web.Close()) })
	for name, tc := range map[string]struct {
		runtime *Runtime
		want    string
	}{
		"without CRI":  {serve("grpc.sock", func(l net.Listener) { _ = empty.Serve(l) }), `gRPC status "12"`},
		"without gRPC": {serve("web.sock", func(l net.Listener) { _ = web.Serve(l) }), "no gRPC: HTTP status 404"},
	} {
		got, err := tc.runtime.nameOf(t.Context(), containerID)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %q, %v, want %s", name, got, err, tc.want)
		}
	}
}

// FuzzRuntimeAnswer: an answer that the interface's own code can read is read the same. Any other answer is read
// without a panic.
func FuzzRuntimeAnswer(f *testing.F) {
	answer, err := proto.Marshal(&cri.ListContainersResponse{Containers: []*cri.Container{{
		Id: containerID, Labels: map[string]string{
			"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web-7d9f",
			"io.kubernetes.container.name": "nginx",
		}, CreatedAt: 1, Metadata: &cri.ContainerMetadata{Name: "nginx"},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answer)
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := podOf(data, containerID)
		var theirs cri.ListContainersResponse
		if proto.Unmarshal(data, &theirs) != nil {
			return
		}
		want := ""
		for _, c := range theirs.GetContainers() {
			if l := c.GetLabels(); c.GetId() == containerID && l[podLabel] != "" {
				want = "pod " + l[namespaceLabel] + "/" + l[podLabel] + "/" + l[containerLabel]
			}
		}
		if err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		_, _ = unframed(data)
	})
}

func TestDialRuntime(t *testing.T) {
	for _, socket := range []string{"containerd.sock", "tcp://127.0.0.1:1", "unix://", "unix://relative.sock"} {
		if r, err := DialRuntime(socket); err == nil || !strings.Contains(err.Error(),
			"/run/containerd/containerd.sock") {
			t.Errorf("%q: %v, %v", socket, r, err)
		}
	}
}
