# What the project needs done, one line each; CI (.ci/run) runs the same.

# The version of a build is its tag's; without one, that of the constant release in cmd/signalbox/inspect.go.
VERSION    ?= $(shell git describe --tags --match 'v[0-9]*' --long --always --dirty 2>/dev/null)
BINARY     ?= bin/signalbox
MAN        ?= $(CURDIR)/man
BUILD      := go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$(VERSION)"
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI   := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TAGS       := processes,compose,browser,conformance,chaos
PYTHON     ?= python3
FUZZTIME   ?= 30s
BENCHTIME  ?= 1s
SHORT      ?=
STATES     ?= 1000000
CHECKS     ?= 20000
# The packages of the root's module and those of the client's module.
ALL        := ./... github.com/signalbox/signalbox/client/...
# Packages whose tests make quick leaves to make test.
SLOW       := cluster|cluster/offline|cluster/replica|cmd/signalbox|cmd/signalbox/internal/hold|fsm|httpapi|store|test/(chaos|client|mutants|rules|simulation)
ONLY       ?=
COUNT      ?= 300
NUMBERS    ?=
SEED       ?= 0
CRASHES    ?= 10000
FOLDERS    ?= 10000
HOURS      ?= 24
DURATION   ?= 0
NODES      ?= 0
ENOUGH     ?= 200
HERDS      ?= 1
FAULT      ?=
EACH       ?= 20s
ROLLS      ?= 100
LIMIT      ?= 0
BESIDE     ?=
FUZZ       ?=
RACE       ?=
COMPARISON ?=

.DEFAULT_GOAL := help
.PHONY: help build run quick test one browser race properties exhaustion simulate chaos rolls powerloss damage lint python conformance consul cross golangci golangci-version vulnerabilities licences alerts man packages packages-test chart sums fuzz bench comparison benchmarks processes compose-test hooks

help:         ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
build:        ## the program, as bin/signalbox
	$(BUILD) -o $(BINARY) ./cmd/signalbox
run: build    ## three nodes in one process, to try things out
	bin/signalbox dev
quick:        ## format, vet, and the tests of packages that take seconds: a first look while you work
	test -z "$$(gofmt -l . | tee -a /dev/stderr)" && go vet $(ALL) && go test -vet=off $$(go list $(ALL) | grep -vE '/signalbox/($(SLOW))$$')
test:         ## all tests but those below; with lint, which vets, the loop before each commit
	go test -vet=off $(ALL)
one:          ## one test: make one T=TestX
	@scripts/one.sh $(T)
browser:      ## the console in Chromium, if it is installed
	go test -tags browser -count 1 -timeout 5m ./httpapi/ui
python: build ## the tests of the Python client, and its types where mypy is installed
	cd client/python && SIGNALBOX="$(abspath $(BINARY))" PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m unittest discover -s tests
	@if command -v mypy >/dev/null; then cd client/python && mypy --strict --cache-dir /dev/null signalbox; else echo 'NOT CHECKED: the types of the Python client: mypy is not installed'; fi
conformance:  ## one list of cases with the clients in Go and Python
	go test -tags processes,conformance -count 1 -v -run '^TestConformance$$' ./cmd/signalbox
consul: build ## Consul's Go client, as it is, against three nodes; the cost of a crowd
	cd test/consulclient && go vet ./... && SIGNALBOX="$(abspath $(BINARY))" go test -count 1 -v -timeout 10m ./...
race:         ## the tests with the race detector; RACE='./store/... ./test/client': of these packages
	@$(BESIDE) scripts/race.sh $(RACE)
properties:   ## random operations against a slow, obvious model
	nice go test ./fsm -run TestProperty -rapid.checks=$(CHECKS) -timeout 30m
exhaustion:   ## every sequence of commands in a small scope, up to STATES distinct states
	nice go test ./fsm -count 1 -v -run '^TestExhaustion(OfWindows|OfSlots)?$$' -states $(STATES) -timeout 600m
simulate:     ## the whole service in virtual time, under faults: SEED=… (0: drawn) HOURS=…
	GOGC=400 nice go test ./test/simulation -count 1 -v -run '^TestSimulation$$' -seed $(SEED) -hours $(HOURS) -timeout 600m
chaos:        ## real processes under faults: SEED=… (0: drawn) DURATION=… (0: 12 faults) NODES=… (0: 3 and 5) HERDS=… of clients FAULT=… alone EACH=20s
	go test -tags chaos -count 1 -v -run '^TestChaos$$' -timeout $(LIMIT) ./test/chaos -seed $(SEED) -duration $(DURATION) -nodes $(NODES) -enough $(ENOUGH) -herds $(HERDS) -each $(EACH) -only "$(FAULT)"
rolls:        ## ROLLS rolling restarts of three processes under load
	go test -tags processes -count 1 -v -run '^TestRollingRestart$$' -timeout 0 ./cmd/signalbox -rolls $(ROLLS)
mutants:      ## deliberate faults, each caught by a test; ONLY=TEXT: those with it in name or file
	go run ./test/mutants -only "$(ONLY)"
mutations:    ## COUNT random faults in fsm and store, chosen by SEED, and those that no test catches; NUMBERS=7,20-40: these of them
	go run ./test/mutants -random $(COUNT) -seed $(SEED) -numbers "$(NUMBERS)"
powerloss:    ## CRASHES losses of power, of which the data folder must lose nothing
	SIGNALBOX_STORE_CRASHES=$(CRASHES) SIGNALBOX_STORE_CRASH_SEED=$(SEED) go test ./store -count 1 -v -run '^TestPowerLoss$$' -timeout 180m
damage:       ## FOLDERS damaged data folders, none of which may be believed
	SIGNALBOX_STORE_DAMAGE_CASES=$(FOLDERS) SIGNALBOX_STORE_DAMAGE_SEED=$(SEED) go test ./store -count 1 -v -run '^TestDamagedFilesAreNeverBelieved$$' -timeout 180m
lint:         ## format, vet, staticcheck
	test -z "$$(gofmt -l . | tee -a /dev/stderr)" && go vet -tags $(TAGS) $(ALL) && $(STATICCHECK) -checks all -tags $(TAGS) $(ALL)
cross:        ## what compiles elsewhere: client and program on Windows and macOS, with their tests
	for system in windows darwin; do GOOS=$$system $(BESIDE) go vet ./cmd/... $(lastword $(ALL)) || exit; done
	GOOS=windows $(BESIDE) go build -o /dev/null ./cmd/signalbox
golangci:     ## more linters (.ci/golangci.yaml); building them takes a minute or two once
	for module in . client; do (cd $$module && $(GOLANGCI) run --config $(CURDIR)/.ci/golangci.yaml ./...) || exit; done
golangci-version:
	$(GOLANGCI) version
vulnerabilities: ## known ones that the code can reach, where their database is at hand
	@scripts/vulnerabilities.sh
licences:     ## the licences of all modules, as docs/licences.md
	@go test -count 1 -run '^TestLicences$$' ./test/rules -update && cat docs/licences.md
alerts:       ## the alert rules and the dashboard, with promtool
	scripts/alerts.sh
man:          ## the manual pages, in man/
	go test -count 1 -run '^TestManual$$' ./cmd/signalbox -man "$(MAN)"
packages:     ## archives, debs and rpms of all platforms, in dist/
	scripts/dist.sh dist
# Its script calls make, which would wait for the jobs of this one.
packages-test: ## the packages, installed, started, upgraded and removed in a folder; as root
	env -u MAKEFLAGS -u MAKELEVEL nice scripts/packages-test.sh
chart:        ## the Helm chart, with helm
	scripts/chart.sh
sums:         ## lines, words and other counts of the tree, beside their ceilings
	@scripts/sums.sh
fuzz:         ## every fuzz target for FUZZTIME (30s, or 1000x: inputs); FUZZ='./fsm ./store': of these folders
	nice scripts/fuzz.sh $(FUZZTIME) $(FUZZ)
bench: comparison ## the tables of docs/performance.md
	go test -v -run '^$$' -bench '^BenchmarkTable$$' -benchtime 1x -timeout 60m ./cmd/signalbox
comparison: build ## cycles a second beside etcd, ZooKeeper, NATS and Redis, as far as they are installed
	cd test/comparison && PATH="$(abspath $(dir $(BINARY))):$$PATH" go run . $(COMPARISON)
benchmarks:   ## all benchmarks, each for BENCHTIME; SHORT=-short BESIDE=nice: small, beside others, to see that they run
	$(BESIDE) go test $(SHORT) -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 60m $(ALL)
# Only tests of files with the tag run here: make test has run the others.
processes:    ## real processes, killed, paused, upgraded
	go test -tags processes -count 1 -timeout 20m -run "^($$(sed -n 's/^func \(Test[A-Za-z]*\)(t .*/\1/p' $$(grep -l '^//go:build processes' cmd/signalbox/*_test.go) | paste -sd '|' -))$$" ./cmd/signalbox
compose-test: ## real containers, if there is a Docker engine
	scripts/compose-test.sh
hooks:        ## let git check format, vet and the architecture before each push
	git config core.hooksPath scripts/hooks
