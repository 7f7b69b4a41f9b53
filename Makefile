# plait: run make for a list of what can be done.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: build deb trydeb demo test reproduce bench fuzz lint help

GO := scripts/go
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s

# Who has become root by su alone has not the directories of the programs that tests call.
export PATH := $(PATH):/usr/sbin:/sbin

# No cgo, no paths and no revision in the binary: it is also the agent inside the guest image, so it must depend on nothing
# but the source. VERSION changes with a release, not with a commit.
export CGO_ENABLED := 0
BUILD := $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(shell cat VERSION)'

build: ## Build ./plait, one static binary
	@scripts/bootstrap go
	@echo "compiling plait: some minutes the first time, of which nothing is to be seen"
	$(BUILD) -o plait ./cmd/plait

# Between releases the package's version goes with the commit's time, or apt would take the next one for installed.
deb: COMMITTED = $(if $(findstring -dev,$(shell cat VERSION)),$(shell TZ=UTC git log -1 --format=.%cd --date=format-local:%Y%m%d%H%M%S 2>/dev/null))
# Its files are of that time, too.
deb: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
deb: build ## Make dist/plait_VERSION_ARCHITECTURE.deb
	packaging/deb plait "$$(cat VERSION)$(COMMITTED)" "$$(dpkg --print-architecture)" dist

trydeb: build ## Try that package on Debians with systemd, in QEMU (as root)
	@scripts/bootstrap lab
	packaging/try plait trixie
	packaging/try plait bookworm

demo: build ## Install what is needed, run the showcase, write a report
	@scripts/bootstrap lab
	./plait lab demo

test: build ## Run all tests: pure ones, then with namespaces and virtual machines
	@scripts/bootstrap lab test
	$(GO) test -p 4 ./... # more than two cores take: some packages wait more than they compute
	PLAIT_TEST=vm PLAIT_AGENT="$(CURDIR)/plait" $(GO) test -json -p 1 -timeout 70m ./... | $(GO) run ./internal/skips .ci/allowed-skips

reproduce: build ## Run every experiment and write one report; interrupted, go on; TRACES=directory of recordings
	@scripts/bootstrap lab
	./plait lab reproduce --resume $(if $(TRACES),--traces "$(TRACES)")

bench: build ## Run the benchmarks
	@scripts/bootstrap lab test bench
	PLAIT_TEST=vm PLAIT_AGENT="$(CURDIR)/plait" $(GO) test -run '^$$' -bench . -benchmem -p 1 -timeout 70m ./...

fuzz: ## Fuzz every parser for FUZZTIME (30s) each
	@scripts/bootstrap go
	@grep -rHoE --include='*_test.go' '^func Fuzz\w+' . | sed 's,/[^/]*:func , ,' | while read -r dir target; do \
		PLAIT_TEST=vm $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	done

lint: ## Run the linters
	@scripts/bootstrap go lint
	shellcheck scripts/* packaging/{deb,licences,try,try-guest} .ci/run egress/render/testdata/*.sh
	$(GO) run $(GOLANGCI_LINT) run ./...
	GOARCH=arm64 $(GO) build -o /dev/null ./cmd/plait

help: ## Show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 18
