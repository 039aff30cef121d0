package config

// Telemetry is what the gateway shows of its work to the operator's own tools.
type Telemetry struct {
	OTLPEndpoint  string // base URL of a collector; empty: no spans
	Content       bool
	MetricsListen string // host:port; empty: no metrics
}

func (t *Telemetry) keys() []key {
	return []key{
		{name: "otlp_endpoint", value: text(&t.OTLPEndpoint, "", "http or https URL", orEmpty(checkURL)), env: "OTEL_EXPORTER_OTLP_ENDPOINT",
			doc: "Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; spans go to its path /v1/traces. It may be private. Empty: no spans."},
		{name: "content", value: boolean(&t.Content, false), env: "TURNPIKE_TELEMETRY_CONTENT",
			doc: "Puts what was said into spans: messages, arguments and results of tools, each cut to 8 KiB. Relayed requests stay unread."},
		{name: "metrics_listen", value: text(&t.MetricsListen, "", "host:port", orEmpty(checkListen)), env: "TURNPIKE_METRICS_LISTEN",
			doc: "Address that GET /metrics is served on, for Prometheus, without a key: whoever reaches it reads the names of all orgs and models. Empty: no metrics."},
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
