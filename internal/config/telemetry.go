package config

// Telemetry is what the gateway shows of its work to the operator's own tools.
type Telemetry struct {
	OTLPEndpoint  string // base URL of a collector; empty: no spans
	Content       bool
	MetricsListen string // host:port; empty: no metrics
}

func (t *Telemetry) keys() []key {
	return []key{
		{name: "otlp_endpoint", value: address(&t.OTLPEndpoint, orEmpty(checkURL)), env: "OTEL_EXPORTER_OTLP_ENDPOINT",
			doc: "Base URL of an OpenTelemetry collector for OTLP over HTTP, for example http://127.0.0.1:4318. Spans are sent to /v1/traces. Private addresses are allowed. Empty: no spans."},
		{name: "content", value: boolean(&t.Content, false), env: "TURNPIKE_TELEMETRY_CONTENT",
			doc: "Adds messages, tool arguments and tool results to spans, each truncated to 8 KiB. It does not apply to relayed requests."},
		{name: "metrics_listen", value: text(&t.MetricsListen, "", "host:port", orEmpty(checkListen)), env: "TURNPIKE_METRICS_LISTEN",
			doc: "Listen address of GET /metrics, for Prometheus. It needs no key and shows the names of all orgs and models. Empty: no metrics."},
	}
}

// orEmpty lets "" pass before check.
func orEmpty(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}
