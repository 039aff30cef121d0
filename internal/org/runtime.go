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
// a pointer is nil or a word is empty, each surface has a default of its own.
type Runtime struct {
	MaxRounds          *int
	MaxCalls           *int
	Deadline           time.Duration // of active time; 0 = the surface's own
	Concurrency        int           // runs at a time
	StreamMode         StreamMode    // empty = Live
	ToolParallelism    string        // auto, parallel, safe, serial, first
	CatalogTTL         time.Duration // 0 asks the servers on every run
	ToolResultMaxBytes *int
	ToolArgValidation  string // strict, none
	ToolErrorMode      string // recover, abort
	OnLimit            string // stop, answer
	DoomLoop           string // nudge, fail, off
	DroppedParams      string // name, refuse
}
