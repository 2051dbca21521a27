# `make` or `make help` lists the targets. Two need rights for some of what they do: demo and test install what is
# missing (.ci/apt-packages) and build network namespaces; without root those tests are skipped.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOBUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

# Runs of each fuzz target: a few seconds. Not a duration, whose end Go before 1.27 at times reports as a failure,
# "context deadline exceeded" (go.dev/issue/75804).
FUZZTIME ?= 200000x
BENCH ?= .
# Flags for `go test`, such as TESTFLAGS='-run Sockets -count 3'.
TESTFLAGS ?=

.PHONY: help all build cross test verify demo lint bench fuzz cover generate check-generated check-pins deps clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

all: build lint test ## build, lint and test

build: ## bin/perfdoctor, static
	$(GOBUILD) -o bin/perfdoctor ./cmd/perfdoctor

cross: ## bin/perfdoctor-linux-arm64, and vet what compiles for arm64 only
	GOARCH=arm64 $(GOBUILD) -o bin/perfdoctor-linux-arm64 ./cmd/perfdoctor
	GOARCH=arm64 CGO_ENABLED=0 go vet ./...

# -p 1: tests measure this host's CPUs, so nothing else may be compiled or run beside them. What can be compiled
# beforehand is, on all CPUs.
test: deps ## all tests; needs of the machine are installed
	@go build ./...
	go tool gotestsum --format pkgname-and-test-fails -- -p 1 -timeout 15m $(TESTFLAGS) ./...

verify: build deps ## run every scenario three times and count what was said right and wrong (root, half an hour)
	bin/perfdoctor scenario verify --all --runs 3

demo: build ## diagnose a real sick process
	@.ci/deps ip
	go run ./internal/lab/demo

lint: ## go vet, golangci-lint, formatting
	go vet ./...
	go tool golangci-lint run --allow-serial-runners --concurrency 2 ./...

bench: deps ## benchmarks, each with its peer in the same run
	@mkdir -p bin
	go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./... > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	@grep -E '^(pkg:|Benchmark)' bin/bench.txt

fuzz: ## each fuzz target for FUZZTIME (200000x)
	@grep -roE --include='*_test.go' '^func Fuzz\w+' ./* | sed 's|/[^/]*:func | |' | while read -r dir name; do \
		go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; done

cover: ## test coverage, by package and in total
	@mkdir -p bin
	@$(MAKE) --no-print-directory test TESTFLAGS='-coverprofile=bin/cover.out $(TESTFLAGS)'
	@go tool cover -func bin/cover.out | tail -n 1

generate: ## everything that is generated and committed
	go generate ./...

# Compared with the state before, so that it can be used on a tree with other changes.
check-generated: ## fail if generate changes anything
	@.ci/deps clang-14 llvm-strip-14
	@state() { git status --porcelain; git diff; }; \
	before=$$(state | sha256sum); $(MAKE) --no-print-directory generate || exit 1; \
	if [ "$$before" != "$$(state | sha256sum)" ]; then \
		git status --short; echo 'generated files are stale: run make generate and commit'; exit 1; fi

check-pins: ## fail if a dependency is not pinned
	go test -count 1 -run '^TestPins' ./internal/conventions
	go mod verify

deps: ## install the commands that tests need (apt)
	@.ci/deps

clean: ## remove what was built
	rm -rf bin dist .cache
