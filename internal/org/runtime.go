package org

import "time"

// StreamMode says what of a loop's rounds a streaming client sees.
type StreamMode string

// The stream modes.
const (
	Live      StreamMode = "live"       // every round's text as it arrives
	FinalOnly StreamMode = "final_only" // the last round's text, in small frames
	Disabled  StreamMode = "disabled"   // JSON, whatever was asked for
)

// Runtime is how an org's runs behave, in the words of the configuration. Where
// a pointer is nil or a word is empty, each surface has a default of its own. The
// JSON is what the stores keep.
type Runtime struct {
	MaxRounds          *int          `json:"max_rounds"`
	MaxCalls           *int          `json:"max_calls"`
	Deadline           time.Duration `json:"deadline_ns"`       // of active time; 0 = the surface's own
	Concurrency        int           `json:"concurrency"`       // runs at a time
	StreamMode         StreamMode    `json:"stream_mode"`       // empty = Live
	ToolParallelism    string        `json:"tool_parallelism"`  // auto, parallel, safe, serial, first
	CatalogTTL         time.Duration `json:"catalog_ttl_ns"`    // 0 asks the servers on every run
	ToolCacheTTL       time.Duration `json:"tool_cache_ttl_ns"` // 0 keeps no results
	ToolResultMaxBytes *int          `json:"tool_result_max_bytes"`
	ToolArgValidation  string        `json:"tool_arg_validation"` // strict, lenient, none
	ToolErrorMode      string        `json:"tool_error_mode"`     // recover, abort
	OnLimit            string        `json:"on_limit"`            // stop, answer
	DoomLoop           string        `json:"doom_loop"`           // nudge, fail, off
	DoomThreshold      int           `json:"doom_threshold"`      // 0 = the default
	DroppedParams      string        `json:"dropped_params"`      // name, refuse
	MaxRunTokens       *int          `json:"max_run_tokens"`      // nil = no limit
	Durable            string        `json:"durable"`             // auto, always; empty = auto
	Rate               Rate          `json:"rate"`                // of requests to the model API
}
