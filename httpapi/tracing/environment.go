package tracing

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// sampler reports whether a trace is sampled. The parent is nil in a trace that begins here.
type sampler func(trace [16]byte, parent *spanContext) bool

// newSampler returns the sampler of OTEL_TRACES_SAMPLER.
func newSampler(variable func(string) string) (sampler, error) {
	name, parentBased := strings.CutPrefix(variable("OTEL_TRACES_SAMPLER"), "parentbased_")
	ratio := 1.0
	switch name {
	case "":
		parentBased = true
	case "always_on":
	case "always_off":
		ratio = 0
	case "traceidratio":
		parsed, err := strconv.ParseFloat(cmp.Or(variable("OTEL_TRACES_SAMPLER_ARG"), "1"), 64)
		if err != nil || !(parsed >= 0 && parsed <= 1) {
			return nil, malformed("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1")
		}
		ratio = parsed
	default:
		return nil, malformed("OTEL_TRACES_SAMPLER", "[parentbased_]always_on, always_off or traceidratio")
	}
	below := uint64(ratio * (1 << 63))
	return func(trace [16]byte, parent *spanContext) bool {
		if parentBased && parent != nil {
			return parent.sampled
		}
		return binary.BigEndian.Uint64(trace[8:])>>1 < below // as the SDKs do, so that nodes agree
	}, nil
}

// malformed is the error of an unusable variable. It does not show the value, which may be a secret.
func malformed(name, form string) error { return fmt.Errorf("%s: it is not %s", name, form) }

// milliseconds reads a variable of a time.
func milliseconds(variable func(string) string, name string, otherwise time.Duration) (time.Duration, error) {
	text := variable(name)
	if text == "" {
		return otherwise, nil
	}
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil || ms == 0 {
		return 0, malformed(name, "a number of milliseconds")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// pairsOf reads a variable of key=value,key=value, with percent-encoded values.
func pairsOf(variable func(string) string, name string) (map[string]string, error) {
	pairs := map[string]string{}
	for pair := range strings.SplitSeq(variable(name), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		key = strings.TrimSpace(key)
		if !found || err != nil || key == "" {
			return nil, malformed(name, "key=value,key=value with percent-encoded values")
		}
		pairs[key] = plain
	}
	return pairs, nil
}

// resourceOf returns the origin of all spans. The variables of the environment win.
func resourceOf(cfg Config, variable func(string) string) (*tracepb.ResourceSpans, error) {
	values := map[string]string{"service.name": "signalbox", "service.version": cfg.Version, "service.instance.id": cfg.Node}
	attributes, err := pairsOf(variable, "OTEL_RESOURCE_ATTRIBUTES")
	if err != nil {
		return nil, err
	}
	maps.Copy(values, attributes)
	if name := variable("OTEL_SERVICE_NAME"); name != "" {
		values["service.name"] = name
	}
	return newResource(values, cfg.Version), nil
}

func newResource(values map[string]string, version string) *tracepb.ResourceSpans {
	resource := &resourcepb.Resource{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		resource.Attributes = append(resource.Attributes, text(key, values[key]))
	}
	return &tracepb.ResourceSpans{Resource: resource, ScopeSpans: []*tracepb.ScopeSpans{{
		Scope: &commonpb.InstrumentationScope{Name: "github.com/signalbox/signalbox", Version: version}}}}
}
