# What the project needs done, one line each; CI (.ci/run) runs the same.

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null)
BUILD      := go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$(VERSION)"
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
TAGS       := processes,compose
FUZZTIME   ?= 30s
BENCHTIME  ?= 1s

.PHONY: build run test race properties lint fuzz bench processes compose-test

build:        ; $(BUILD) -o bin/signalbox ./cmd/signalbox
run: build    ; bin/signalbox dev
test:         ; go test ./...
race:         ; CGO_ENABLED=1 go test -race -timeout 30m ./...
properties:   ; go test ./fsm -run TestProperty -rapid.checks=20000 -timeout 30m
lint:         ; test -z "$$(gofmt -l . | tee -a /dev/stderr)" && go vet -tags $(TAGS) ./... && $(STATICCHECK) -tags $(TAGS) ./...
fuzz:         ; scripts/fuzz.sh $(FUZZTIME)
bench:        ; go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 60m ./...
processes:    ; go test -tags processes -count 1 -timeout 20m ./cmd/signalbox
compose-test: ; scripts/compose-test.sh
