// Package config reads Turnpike's one configuration file: YAML, or JSON, which
// is YAML too.
//
//	file ──► YAML tree ──► keys (one table) ──► environment ──► cross-checks ──► *Config
//	              │             │                   │                │
//	              └─────────────┴───── mistakes ────┴────────────────┘   all of them, at once
//
// Every key has a default and a line of documentation, both in the table that
// the parser itself reads (keys.go); [Keys] returns it for a manual. Unknown
// keys, wrong types and values out of range are errors that name file, line,
// column, the key's full path, what was found and what is allowed:
//
//	turnpike.yaml:17:21: orgs[0].runtime.max_rounds: 51 is above max_rounds_cap (50)
//
// Credentials stay references ([secret.Text]); [Config.Resolve] resolves them
// and reports the missing ones with their place in the file. Values of features
// that are not built yet are a column of the table; they are parsed and refused.
package config

import (
	"net/netip"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Config is a whole configuration, checked, with every default filled in. The
// fields are the keys of the file; their documentation is in [Keys].
type Config struct {
	Listen             string // host:port
	PublicURL          string
	PublicHosts        []string // names of the gateway, in lower case, without ports
	AllowedOrigins     []string // sites such as https://app.example.com
	MaxConnections     int
	MaxRequests        int         // under way at a time
	MaxRetainedMiB     int         // by all requests and runs; 0 = what the machine allows
	MaxRetainedRunMiB  int         // by one run
	MaxRelayBodyMiB    int         // of a request to a relayed endpoint
	MaxSpoolMiB        int         // of the files of all such requests
	MaxFollowersPerRun int         // of one run, by repeats of its Idempotency-Key
	Data               string      // directory
	Database           secret.Text // URL of PostgreSQL; empty: SQLite in Data
	Postgres           Postgres
	Replica            *Replica // nil = there is one gateway
	Redis              secret.Text
	ClickHouse         secret.Text
	MaxRoundsCap       int
	OrgCaps            org.Caps
	OperatorKey        secret.Text // empty: nobody manages orgs over the API
	MasterKey          secret.Text // empty: orgs have no vault
	MasterKeyPrevious  secret.Text // the one before; empty: none
	CachePepper        secret.Text // empty: a new one at every start
	Providers          []Provider
	Routes             []Route // in configuration order
	Models             []Model // in configuration order
	Compaction         Compaction
	ToolDispatch       ToolDispatch
	Rates              string      // file
	RateRows           []money.Row // of that file
	Outbound           Outbound
	Log                Log
	Telemetry          Telemetry
	Audit              Audit
	Runs               Runs
	Sandbox            Sandbox
	MinFreeDiskMiB     int                // below, no work is accepted; 0 = no floor
	MCPServers         []org.SharedServer // in configuration order
	Orgs               []Org

	// Warnings are what is allowed and unwise, one line each, such as a
	// credential written into the file. They never quote a credential.
	Warnings []string

	file    string
	where   map[string]origin
	replica Replica // what Replica points to
}

// ToolDispatch is the URL that executes tools which requests define.
type ToolDispatch struct {
	URL     string        // "" = there is none
	Secret  secret.Text   // signs the requests; empty: they are not signed
	Timeout time.Duration // of a call, with its retries
	Tools   []string      // names and globs of the tools that it executes
}

// Log is how the gateway writes its log, to standard error.
type Log struct {
	Format string // text or json
	Level  string // debug, info, warn or error
}

// CheckLogLevel returns an error for text that is no level of the log.
func CheckLogLevel(level string) error { return oneOf(level, logLevels()) }

func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// Runs is how runs are kept.
type Runs struct {
	RetentionDays int // after their end; 0 = runs are never deleted
}

// Route is a model name of the gateway's own and the targets that serve it.
type Route struct {
	Model    string
	Strategy string // fallback, round_robin, weighted or latency
	Sticky   string // session or none; "" = session with more than one target, else none
	Targets  []RouteTarget
}

// RouteTarget is a model of a provider in a route.
type RouteTarget struct {
	Provider string
	Model    string // the provider's name for it
	Weight   int    // for the strategy weighted
}

// Model is what the operator says of models of providers.
type Model struct {
	Model         string // the provider's name for it, or a glob
	Provider      string // "" = all providers
	ContextWindow *int   // in tokens; nil = not given
	MaxInput      *int   // in tokens; nil = not given
	Images        *bool  // whether they take images; nil = by their names
}

// Compaction is how prompts that are too long are shortened.
type Compaction struct {
	Model        string   // that writes summaries; "" = the default rule, see loop.ContextPolicy
	ExcludeTools []string // whose results always stay
}

// Audit is how the audit is kept.
type Audit struct {
	Key           secret.Text // signs checkpoints; empty: a file in the data directory
	Checkpoints   string      // file; empty: one in the data directory, with PostgreSQL none
	RetentionDays int         // 0 = rows are kept for ever
	UsageDays     int         // how long the sums of their usage are kept; 0 = as long as rows
}

// Provider is one model API that the gateway calls.
type Provider struct {
	Name    string
	Kind    string // one of the kinds of [Keys]
	BaseURL string // with its query, if any; empty only for demo: the built-in one
	APIKey  secret.Text
	Models  []string // exact names and globs, in which * stands for any characters

	APIKeyHeader string // that carries the bare key; "" = the kind's own

	RelayHeaders []string // of clients that relayed requests keep, beside the usual ones

	DefaultMaxTokens *int // anthropic; nil = the adapter's default

	Region          string      // bedrock
	AccessKeyID     secret.Text // bedrock
	SecretAccessKey secret.Text // bedrock
	SessionToken    secret.Text // bedrock; empty = none
	APIVersion      string      // gemini; "" = the adapter's default
}

// Outbound is what guards the addresses that orgs, users, models and remote
// servers can name.
type Outbound struct{ SSRF SSRF }

// SSRF says which classes of address are refused.
type SSRF struct {
	BlockLoopback     bool
	BlockPrivate      bool
	BlockLinkLocal    bool
	BlockMulticast    bool
	BlockCGNAT        bool
	BlockULAV6        bool
	ExtraBlockedCIDRs []netip.Prefix
	AllowlistCIDRs    []netip.Prefix // overrides every class
}
