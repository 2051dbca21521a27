# `make` or `make help` lists the targets. Three need rights for some of what they do: demo and test install what is
# missing (.ci/apt-packages) and build network namespaces; without root those tests are skipped. build as root installs
# Maven when async-profiler is still to be fetched.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# -w drops what debuggers read; not to write it first saves a quarter of the compiler's time (2.9 instead of 3.7 s for
# crypto/tls, Go 1.26). Whatever builds the program has the same flags, so that it is compiled once.
GOFLAGS_BINARY := -trimpath -gcflags=all=-dwarf=false
GOBUILD := CGO_ENABLED=0 go build $(GOFLAGS_BINARY) -ldflags '$(LDFLAGS)'

# Runs of each fuzz target: a few seconds. Not a duration, whose end Go before 1.27 at times reports as a failure,
# "context deadline exceeded" (go.dev/issue/75804).
FUZZTIME ?= 200000x
BENCH ?= .
# Linters and test tools have a go.mod of their own: docs/decisions/0060-tools-have-a-module.md.
TOOL := go tool -modfile=tools/go.mod
# Flags for `go test`, such as TESTFLAGS='-run Sockets -count 3'.
TESTFLAGS ?=
# Flags for gotestsum, such as GOTESTSUMFLAGS='--rerun-fails=1'.
GOTESTSUMFLAGS ?=

.PHONY: help all build binary bundle cross workloads jdks toolchains release check-packages check-fleet check-kubernetes test test-hostile test-kernels verify verify-ci languages exam exam-check exam-peers exam-report demo lint bench bench-peers bench-short fuzz cover generate check-generated check-pins check-vulnerabilities deps clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

all: build lint test ## build, lint and test

build: bundle binary ## bin/perfdoctor, static

# What was bundled before is in it.
binary: ## bin/perfdoctor without fetching anything
	$(GOBUILD) -o bin/perfdoctor ./cmd/perfdoctor

# Neither is committed. Without them the program builds and works, and says what it lacks. What is there already and
# right is not fetched again, so that a later build needs no network.
bundle: ## what the binary carries: async-profiler (Maven), the HTML report's program (npm), and the licences of the Go modules
	@go run ./internal/cli/licenses/gather internal/cli/licenses/texts/licenses.txtar.zst
	@go run ./internal/jvm/asprof/fetch --have internal/jvm/asprof/library 2>/dev/null || { \
		if [ "$$(id -u)" = 0 ]; then .ci/deps mvn; fi; \
		go run ./internal/jvm/asprof/fetch internal/jvm/asprof/library; } || \
		echo 'bundle: building without async-profiler: a JVM is profiled with --async-profiler PATH only'
	@$(MAKE) --no-print-directory $(WEB)/page.js || \
		echo 'bundle: building without the program of the HTML report: its charts and flame graphs will be missing'

# The program of the HTML report, from web/ with the modules of its package-lock.json, which lie in .cache: tests read all of web/.
WEB := internal/report/html/bundle/built
NODE_PATH := $(CURDIR)/.cache/web/node_modules

$(WEB)/page.js: $(NODE_PATH)/.package-lock.json $(wildcard web/src/*) web/build.mjs web/tsconfig.json
	@cd web && '$(NODE_PATH)/.bin/tsc' -p . && NODE_PATH='$(NODE_PATH)' node build.mjs ../$(WEB)

$(NODE_PATH)/.package-lock.json: web/package.json web/package-lock.json
	@if [ "$$(id -u)" = 0 ]; then .ci/deps node npm; fi
	@mkdir -p .cache/web && cp web/package.json web/package-lock.json .cache/web/
	@cd .cache/web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null && touch '$@'

cross: bundle ## bin/perfdoctor-linux-arm64, and vet what compiles for arm64 only
	GOARCH=arm64 $(GOBUILD) -o bin/perfdoctor-linux-arm64 ./cmd/perfdoctor
	GOARCH=arm64 CGO_ENABLED=0 go vet ./...

# The packages whose tests assert what they find of this machine, or of its time, or look for what is left in /tmp, run
# one by one after the others, of which two run side by side. -vet=off: lint has all of vet, and here it would read each
# package once more.
QUIET := ./internal/collect/... ./internal/collectors/asprof ./internal/collectors/ebpf ./internal/collectors/symbols \
	./internal/collectors/waitstacks ./internal/dev/e2e ./internal/dev/hostile ./internal/jvm/asprof \
	./internal/kernel/perfevent ./internal/lab ./internal/lab/commands ./internal/lab/load ./internal/lab/vm

# The longest of the others come first, so that none of them runs on when the rest have ended.
LONG := ./internal/report/html ./internal/jvm

test: deps bundle jdks toolchains ## all tests; needs of the machine are installed
	@go build ./...
	@mkdir -p bin
	@export TURN=$(CURDIR)/bin/turn QUIET="$$(go list $(QUIET))"; \
	$(TOOL) gotestsum --format pkgname-and-test-fails $(GOTESTSUMFLAGS) \
		--packages "$(LONG) $$(go list ./... | grep -vxF "$$QUIET" | xargs) $$(echo $$QUIET)" -- \
		-p 2 -exec $(CURDIR)/.ci/turn -vet=off -timeout 15m $(TESTFLAGS)
	cd tools/release && go test ./...

test-hostile: deps bundle jdks ## the attacks alone: programs that a hostile target could be, against the built program (root)
	go test -count 1 -v ./internal/dev/hostile

# KERNELS names some of this machine, 5.10, 6.1, 6.12 and '6.12 arm64' (each in quotes of its own); none is all of them.
# The table goes to KERNELS_DOC, too; KERNELS_DOC=docs/kernels.md is how that page is made.
KERNELS ?=
KERNELS_DOC ?= bin/kernels.md

test-kernels: ## what depends on the kernel, on Debian's 5.10, 6.1 and 6.12 in guests, with a table (root, four minutes)
	@.ci/deps qemu-system-x86_64 qemu-system-aarch64
	@mkdir -p bin
	go run ./internal/lab/kernels -doc $(KERNELS_DOC) $(KERNELS)

# What the Java scenarios run, of which nothing is fetched again: .cache/java and .cache/jdk/11, 17, 21 and 25.
workloads: jdks .cache/java/built ## the JVMs and Java programs of the scenarios (Maven, pip; 150 MB to download, once)

# One of each layout of goroutines but that of the go command itself, and the newest.
GO_VERSIONS := 1.22.12 1.24.13 1.25.10 1.27.3

toolchains: ## the other versions of Go that tests build programs with (65 MB to download each, once)
	@for v in $(GO_VERSIONS); do GOTOOLCHAIN=go$$v go version >/dev/null || exit 1; done

jdks: ## the JVMs alone, and .NET
	@.ci/deps pip3 mcs
	workloads/jdks .cache/jdk
	workloads/dotnet .cache/dotnet

# -C: what arrives must have its checksum. One module after the other into a directory that was not there.
.cache/java/built: $(shell find workloads/java -name '*.java' -o -name pom.xml)
	@.ci/deps mvn javac
	rm -rf .cache/java
	mvn -q -B -C -ntp -f workloads/java/pom.xml package -Dout=$(CURDIR)/.cache/java
	touch $@

verify: build deps workloads ## run every scenario three times and count what was said right and wrong (root, two hours)
	bin/perfdoctor scenario verify --all --runs 3

verify-ci: build ## the scenarios of the subset ci, once each (root, four minutes)
	@.ci/deps ip nft
	bin/perfdoctor scenario verify --subset ci --runs 1

# CELL is FAULT, LANGUAGE or FAULT/LANGUAGE, some or none for all of them: workloads/languages/README.md.
CELL ?=

languages: binary ## put one fault in six languages to bin/perfdoctor, and print the table (root, ten minutes)
	go run ./internal/lab/languages -runs 3 $(CELL)

# The public exam: exam/README.md. CASE names cases; none is all of them. PEERS are flags of `exam peers`.
CASE ?=
PEERS ?=

exam-check: ## fetch and run cases of the exam without any doctor: does the cure move what it must? (root)
	@.ci/deps ip
	@go build -o bin/exam ./internal/lab/exam
	bin/exam check $(CASE)

exam-peers: ## put cases of the exam to other tools: PEERS="-melisai PATH -aperf PATH", as exam/README.md says (root)
	@.ci/deps ip nsenter
	@go build -o bin/exam ./internal/lab/exam
	bin/exam peers $(PEERS) $(CASE)

# A case is run once: what has a result in .cache/exam/results is skipped. To run a case again, remove its directory there.
exam: bundle binary ## put the cases of the exam to bin/perfdoctor: CASE='NAME...', or all (root, about a minute a case)
	@.ci/deps ip nft
	@go build -o bin/exam ./internal/lab/exam
	bin/exam run $(CASE)
	bin/exam score $(CASE)

# KEEP=v1.2 commits the marks of all cases to exam/results under that name; KEEP=first does so once and never again.
KEEP ?=

exam-report: ## docs/exam.md and the README's line, from exam/results; KEEP=NAME: with the marks of make exam, as NAME
	@go build -o bin/exam ./internal/lab/exam
	$(if $(KEEP),bin/exam score -keep $(KEEP))
	bin/exam report

release: bundle ## dist/: programs, Debian and RPM packages, bills of materials and checksums, the same bytes for the same commit
	cd tools/release && go run . -root ../.. -out ../../dist

# The root is debootstrap's from the mirror that it is set up for, made once.
check-packages: .cache/debian/bookworm release ## build the release twice and compare; install it in a clean Debian, ask it, and remove it (root)
	@.ci/deps systemd-nspawn rpm
	PERFDOCTOR_PACKAGES=$(CURDIR)/dist PERFDOCTOR_DEBIAN=$(CURDIR)/.cache/debian/bookworm go test -C tools/release -count 1 -v .

check-fleet: ## let a real Prometheus scrape the exporter, an alert come and go, and ask what the dashboard asks (root)
	@.ci/deps prometheus
	PERFDOCTOR_FLEET=1 go test -count 1 -v -run TestFleet ./internal/dev/e2e

check-kubernetes: ## build the overlays and read them with the types of Kubernetes
	cd deploy/kubernetes/validate && go vet . && go test -count 1 .

.cache/debian/bookworm:
	@.ci/deps debootstrap
	@mkdir -p $(@D) && rm -rf $@.part
	debootstrap --variant=minbase --include=systemd,systemd-sysv bookworm $@.part >$@.log || { tail $@.log; exit 1; }
	@mv $@.part $@

# As binary is compiled: what both need is compiled once.
demo: binary ## diagnose a JVM that is sick, behind a network path that is, too (root, a minute)
	@.ci/deps ip javac
	CGO_ENABLED=0 go run $(GOFLAGS_BINARY) ./internal/lab/demo

lint: ## go vet, golangci-lint, formatting
	go vet ./...
	$(TOOL) golangci-lint run --allow-serial-runners --concurrency 2 ./...
	cd tools/release && go vet ./... && go tool -modfile=../go.mod golangci-lint run --allow-serial-runners --concurrency 2 ./...

bench: deps bundle ## benchmarks, each with its peer in the same run
	@mkdir -p bin
	go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem $(TESTFLAGS) ./... > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	@grep -E '^(pkg:|Benchmark)' bin/bench.txt

# What Debian has is installed; a peer that cannot be is "not measured" on the page. PerfSpect and melisai are in no
# registry: PEERS_PERFSPECT and PEERS_MELISAI are their paths. CONTEST names contests or growths: those are printed only.
CONTEST ?=
PEERS_PERFSPECT ?=
PEERS_MELISAI ?=
PEERS_FLAGS ?=

bench-peers: bundle binary ## perfdoctor beside other tools, in turns: figures, docs/performance.md (root, an idle machine, half an hour)
	@.ci/deps ip ss nft sar javac jcmd prometheus-node-exporter
	@DEPS_LIST=.ci/peer-packages .ci/deps || true
	@go build -o bin/peers ./internal/lab/peers
	bin/peers -perfspect '$(PEERS_PERFSPECT)' -melisai '$(PEERS_MELISAI)' $(PEERS_FLAGS) $(CONTEST)

bench-short: ## a minute of bench-peers, compared with its last committed figures (root)
	.ci/bench-short

fuzz: ## each fuzz target for FUZZTIME (200000x)
	@grep -rlE --include='*_test.go' '^func Fuzz' ./* | xargs -n 1 dirname | sort -u | \
		xargs -P "$$(nproc)" -n 1 .ci/fuzz $(FUZZTIME)

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
	go test -count 1 -run '^TestPins' ./internal/dev/conventions
	@for mod in $$(git ls-files go.mod '*/go.mod'); do echo "$$mod"; (cd "$$(dirname "$$mod")" && go mod verify) || exit 1; done

# A database that cannot be read is no "ok": the target fails and says that nothing was checked. It is a URL or a directory.
VULNDB ?=

check-vulnerabilities: ## known vulnerabilities in what is linked and called, by the database VULNDB
	.ci/vulnerabilities '$(VULNDB)'

deps: ## install the commands that tests need (apt)
	@.ci/deps

clean: ## remove what was built
	rm -rf bin dist .cache internal/cli/licenses/texts/*.zst internal/jvm/asprof/library/*/*.zst $(WEB)/*
