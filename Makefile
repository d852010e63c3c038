# What the project needs done, one line each; CI (.ci/run) runs the same.

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null)
BUILD      := go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$(VERSION)"
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI   := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TAGS       := processes,compose,browser,conformance
PYTHON     ?= python3
FUZZTIME   ?= 30s
BENCHTIME  ?= 1s
SHORT      ?=

.DEFAULT_GOAL := help
.PHONY: help build run test one browser race properties lint python conformance golangci golangci-version vulnerabilities licences alerts man words fuzz bench benchmarks processes compose-test hooks

help:         ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
build:        ## the program, as bin/signalbox
	$(BUILD) -o bin/signalbox ./cmd/signalbox
run: build    ## three nodes in one process, to try things out
	bin/signalbox dev
test:         ## all tests but those below; with lint, the loop before each commit
	go test ./...
one:          ## one test: make one T=TestX
	@scripts/one.sh $(T)
browser:      ## the console in Chromium, if it is installed
	go test -tags browser -count 1 -timeout 5m ./httpapi/ui
python:       ## the tests of the Python client, and its types where mypy is installed
	cd client/python && PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m unittest discover -s tests
	@if command -v mypy >/dev/null; then cd client/python && mypy --strict --cache-dir /dev/null signalbox; else echo 'NOT CHECKED: the types of the Python client: mypy is not installed'; fi
conformance:  ## one list of cases with the clients in Go and Python
	go test -tags processes,conformance -count 1 -v -run '^TestConformance$$' ./cmd/signalbox
race:         ## the tests with the race detector
	CGO_ENABLED=1 go test -race -timeout 30m ./...
properties:   ## random operations against a slow, obvious model
	go test ./fsm -run TestProperty -rapid.checks=20000 -timeout 30m
lint:         ## format, vet, staticcheck
	test -z "$$(gofmt -l . | tee -a /dev/stderr)" && go vet -tags $(TAGS) ./... && $(STATICCHECK) -tags $(TAGS) ./...
golangci:     ## more linters (.golangci.yaml); building them takes a minute or two once
	$(GOLANGCI) run ./...
golangci-version:
	$(GOLANGCI) version
vulnerabilities: ## known ones that the code can reach, where their database is at hand
	@scripts/vulnerabilities.sh
licences:     ## the licences of all modules, as docs/licences.md
	@go test -count 1 -run '^TestLicences$$' . -update && cat docs/licences.md
alerts:       ## the alert rules and the dashboard, with promtool
	scripts/alerts.sh
man:          ## the manual pages, in man/
	go test -count 1 -run '^TestManual$$' ./cmd/signalbox -man "$(CURDIR)/man"
words:        ## how plain the comments of each package and the docs are
	@out=$$(go test -count 1 -v -run '^TestArchitecture$$/^comments_are_plain$$' .); passed=$$?; \
	echo "$$out" | grep -E 'lines of (comments|docs)|more than|FAIL'; exit $$passed
fuzz:         ## every fuzz target for FUZZTIME (30s, or 1000x: inputs)
	scripts/fuzz.sh $(FUZZTIME)
bench:        ## the table of docs/performance.md, in a few minutes
	go test -v -run '^$$' -bench '^BenchmarkTable$$' -benchtime 1x -timeout 60m ./cmd/signalbox
benchmarks:   ## all benchmarks, each for BENCHTIME; SHORT=-short: with a tenth of the largest states
	go test $(SHORT) -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 60m ./...
processes:    ## real processes, killed, paused, upgraded
	go test -tags processes -count 1 -timeout 20m ./cmd/signalbox
compose-test: ## real containers, if there is a Docker engine
	scripts/compose-test.sh
hooks:        ## let git check format, vet and the architecture before each push
	git config core.hooksPath scripts/hooks
