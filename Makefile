# hostler: what can be done with a clone. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# sudo's secure_path leaves out the places where Go usually stands.
GO := $(shell PATH="$$PATH:/usr/local/go/bin:$$HOME/go/bin:/usr/lib/go/bin:/snap/bin" command -v go)
ifeq ($(GO),)
$(error cannot find go: install Go 1.26 or put it on PATH)
endif
export PATH := $(dir $(GO)):$(PATH)
export CGO_ENABLED ?= 0
# One set of flags for all: with another, e.g. without -trimpath, Go compiles everything again.
export GOFLAGS := -buildvcs=false -trimpath $(filter-out -buildvcs% -trimpath%,$(GOFLAGS))

VERSION := $(shell sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
LDFLAGS := -s -w -X hostler/internal/version.Version=$(VERSION)
TAGS ?=
LINTER := .cache/bin/golangci-lint
AUDITOR := .cache/bin/leakcheck
SCANNER := .cache/bin/govulncheck

.PHONY: help
help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '  make %-11s %s\n' "$$t" "$$d"; done

.PHONY: build
build: ## bin/hostlerd and bin/hostler
	$(GO) build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: test
test: prepare ## everything: lint, unit, race, integration, black box, leak check (root)
	$(GO) run ./tests/suite

.PHONY: unit
unit: ## vet and the unit tests, under a minute
	$(GO) vet ./...
	$(GO) test ./...

.PHONY: test-long
test-long: prepare ## the long campaigns: crashes, scale, lost replies (root, hours)
	$(GO) run ./tests/suite -long

.PHONY: test-vm
test-vm: ## on Debian VMs: first install, reboots, power cuts, upgrades, full disk, cloud-init (root); RELEASE=debian/13 runs two of them there
	tests/prepare $(if $(RELEASE),hosts,test)
	$(GO) run ./tests/suite -vm $(RELEASE)

.PHONY: test-hosts
test-hosts: ## the package on hosts of four releases, as a table (root); RELEASE=debian/13 tries one
	tests/prepare hosts
	$(GO) run ./tests/suite -hosts $(RELEASE)

.PHONY: bench
bench: ## the figures, each a ratio of one paired run (root); COMPARE=FILE tells what got slower; FLEET=500 makes 500 containers
	tests/prepare bench
	HOSTLER_BENCH_FLEET='$(FLEET)' $(GO) run ./tests/suite -bench -compare="$(COMPARE)"

.PHONY: fuzz
fuzz: ## every fuzz target for 20 seconds (FUZZTIME=20s)
	$(GO) run ./tests/suite -fuzz $(or $(FUZZTIME),20s)

.PHONY: attack
attack: prepare ## the attacks on network, API, images and store: tried, held (root)
	$(GO) run ./tests/suite -attack

.PHONY: demo
demo: build $(AUDITOR) ## two containers from examples/web.yaml on this host (root)
	tests/demo/up

.PHONY: demo-clean
demo-clean: $(AUDITOR) ## take back all that the demo made (root)
	tests/demo/down

.PHONY: deb
deb: ## dist/hostler_VERSION_ARCH.deb
	tests/prepare deb
	debian/build dist

.PHONY: lint
lint: $(LINTER) ## go.mod is tidy; golangci-lint, pinned in internal/tools
	$(GO) mod tidy -diff
	$(LINTER) run ./...

.PHONY: vulncheck
vulncheck: $(SCANNER) ## known vulnerabilities of the code that is linked (needs vuln.go.dev)
	@$(SCANNER) ./... || { code=$$?; [ $$code = 3 ] || echo "vulncheck: nothing was checked: cannot read the database $${GOVULNDB:-https://vuln.go.dev}; set GOVULNDB to a mirror" >&2; exit $$code; }

$(SCANNER): internal/tools/go.mod internal/tools/go.sum
	@mkdir -p $(@D)
	$(GO) -C internal/tools build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

$(LINTER): internal/tools/go.mod internal/tools/go.sum
	@mkdir -p $(@D)
	$(GO) -C internal/tools build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: $(AUDITOR)
$(AUDITOR):
	@$(GO) build -o $@ ./tests/leakcheck

.PHONY: prepare
prepare: ## the packages that the tests need, from apt (root)
	tests/prepare test

.PHONY: clean
clean:
	rm -rf bin dist .cache
