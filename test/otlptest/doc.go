// Package otlptest is an OTLP/HTTP collector of OpenTelemetry spans, for tests. It keeps
// the spans that it gets; it may hang or refuse, as a broken collector does.
//
//   - collector.go: Collector and Span.
package otlptest
