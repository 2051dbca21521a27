package exporter

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// askTime is how long a container runtime may take to say who a container is: it is asked once for each target, and
// answers in milliseconds.
const askTime = 3 * time.Second

// Labels that the kubelet gives each container (k8s.io/kubelet/pkg/types, labels.go).
const (
	podLabel       = "io.kubernetes.pod.name"
	namespaceLabel = "io.kubernetes.pod.namespace"
	containerLabel = "io.kubernetes.container.name"
)

// A Runtime is the container runtime of a node, asked by the Container Runtime Interface at its local socket.
type Runtime struct {
	conn *grpc.ClientConn
	api  cri.RuntimeServiceClient
	wait time.Duration
}

// DialRuntime takes the path of a socket, with or without unix:// in front. It connects when the runtime is first
// asked, and again when that was started anew.
func DialRuntime(socket string) (*Runtime, error) {
	path := strings.TrimPrefix(socket, "unix://")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not the path of a socket, such as /run/containerd/containerd.sock", socket)
	}
	// What is on this host needs no TLS. A proxy of the environment is for other hosts.
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Runtime{conn: conn, api: cri.NewRuntimeServiceClient(conn), wait: askTime}, nil
}

// Close ends the connection.
func (r *Runtime) Close() error { return r.conn.Close() }

// nameOf gives "pod NAMESPACE/POD/CONTAINER", or "" for a container that is not of the kubelet.
func (r *Runtime) nameOf(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	answer, err := r.api.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	if err != nil {
		return "", fmt.Errorf("ask the container runtime for container %.12s: %w", id, err)
	}
	for _, c := range answer.GetContainers() {
		l := c.GetLabels()
		if c.GetId() == id && l[podLabel] != "" {
			return "pod " + l[namespaceLabel] + "/" + l[podLabel] + "/" + l[containerLabel], nil
		}
	}
	return "", nil
}
