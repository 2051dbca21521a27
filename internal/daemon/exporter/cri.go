package exporter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// askTime is how long a container runtime may take to name a container. It is asked once for each target, and answers
// in milliseconds.
const askTime = 3 * time.Second

// runtimeIdle is how long an unused connection is kept: targets come in groups, as pods do.
const runtimeIdle = time.Minute

// Labels that the kubelet gives each container (k8s.io/kubelet/pkg/types, labels.go).
const (
	podLabel       = "io.kubernetes.pod.name"
	namespaceLabel = "io.kubernetes.pod.namespace"
	containerLabel = "io.kubernetes.container.name"
)

// listContainers is the method to call (k8s.io/cri-api, pkg/apis/runtime/v1/api.proto). The host is the one that
// gRPC's own clients use for a socket.
const listContainers = "http://localhost/runtime.v1.RuntimeService/ListContainers"

// A Runtime is the container runtime of a node. It is asked through the Container Runtime Interface at its local
// socket. The one call uses net/http (docs/decisions/0071).
type Runtime struct {
	transport *http.Transport
	wait      time.Duration
}

// DialRuntime takes the path of a socket, with or without unix:// in front. It connects when the runtime is first
// asked, and again after a restart of the runtime.
func DialRuntime(socket string) (*Runtime, error) {
	path := strings.TrimPrefix(socket, "unix://")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not the path of a socket, such as /run/containerd/containerd.sock", socket)
	}
	// A socket on this host needs no TLS. A proxy of the environment is for other hosts.
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		Protocols: new(http.Protocols), IdleConnTimeout: runtimeIdle,
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &Runtime{transport: t, wait: askTime}, nil
}

// Close ends the connection.
func (r *Runtime) Close() error {
	r.transport.CloseIdleConnections()
	return nil
}

// nameOf returns "pod NAMESPACE/POD/CONTAINER", or "" for a container that the kubelet did not make.
func (r *Runtime) nameOf(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	// ListContainersRequest has its filter as field 1, ContainerFilter the id as field 1.
	answer, err := r.call(ctx, field(1, field(1, []byte(id))))
	if err != nil {
		return "", fmt.Errorf("ask the container runtime for container %.12s: %w", id, err)
	}
	name, err := podOf(answer, id)
	if err != nil {
		return "", fmt.Errorf("the container runtime's answer about container %.12s: %w", id, err)
	}
	return name, nil
}

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

const (
	// frameHeader precedes each gRPC message: whether it is compressed, and its length in 4 bytes
	// (grpc.github.io/grpc/core, PROTOCOL-HTTP2, Length-Prefixed-Message).
	frameHeader = 5
	// maxRuntimeAnswer bounds the answer, in bytes, as gRPC's own clients do: it is about one container and has some
	// KB.
	maxRuntimeAnswer = 4 << 20
)

// call makes the call: one message there and one back.
func (r *Runtime) call(ctx context.Context, message []byte) ([]byte, error) {
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, listContainers, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc") {
		return nil, fmt.Errorf("it speaks no gRPC: HTTP status %d", resp.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, frameHeader+maxRuntimeAnswer+1)) // the trailer comes after it
	if err != nil {
		return nil, err
	}
	status := resp.Trailer.Get("Grpc-Status")
	if status == "" { // of an answer without a message
		status = resp.Header.Get("Grpc-Status")
	}
	switch {
	case len(answer) > frameHeader+maxRuntimeAnswer:
		return nil, fmt.Errorf("it is longer than %d MiB", maxRuntimeAnswer>>20)
	case status != "0":
		return nil, fmt.Errorf("it refuses, with gRPC status %.3q (12: it has no CRI v1)", status)
	}
	return unframed(answer)
}

// unframed returns the one message of an answer.
func unframed(answer []byte) ([]byte, error) {
	if len(answer) < frameHeader || uint64(binary.BigEndian.Uint32(answer[1:])) != uint64(len(answer)-frameHeader) {
		return nil, errors.New("it is not one whole message")
	}
	if answer[0] != 0 {
		return nil, errors.New("it is compressed, which was not asked for")
	}
	return answer[frameHeader:], nil
}

// podOf finds a container by its id in a ListContainersResponse. Field 1 of that are the containers; field 1 of a
// container is its id, and field 8 its labels.
func podOf(answer []byte, id string) (name string, err error) {
	err = eachField(answer, 1, func(container []byte) error {
		own, labels := "", map[string]string{}
		err := errors.Join(
			eachField(container, 1, func(v []byte) error { own = string(v); return nil }),
			eachField(container, 8, func(entry []byte) error { return addLabel(labels, entry) }))
		if own == id && labels[podLabel] != "" {
			name = "pod " + labels[namespaceLabel] + "/" + labels[podLabel] + "/" + labels[containerLabel]
		}
		return err
	})
	return name, err
}

// addLabel adds an entry of a map: field 1 is its key, 2 its value.
func addLabel(labels map[string]string, entry []byte) error {
	var key, value string
	err := errors.Join(
		eachField(entry, 1, func(v []byte) error { key = string(v); return nil }),
		eachField(entry, 2, func(v []byte) error { value = string(v); return nil }))
	labels[key] = value
	return err
}

// eachField calls do for each field with that number that holds bytes, and skips all others.
func eachField(message []byte, number protowire.Number, do func([]byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(message)
			if err := do(v); err != nil {
				return err
			}
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
	}
	return nil
}
