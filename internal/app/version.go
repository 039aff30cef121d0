package app

import (
	"runtime"
	"runtime/debug"
)

// release is the version of a release, and its commit if the version does not name
// it. Only the linker sets it:
//
//	go build -ldflags '-X github.com/turnpike-gateway/turnpike/internal/app.release=v1.2.3' ./cmd/turnpike
var release string

// Version returns the version, the commit and the Go version of this build, as far
// as they are known.
func Version() string {
	if release != "" {
		return release + " " + runtime.Version()
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, revision := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(12, len(s.Value))]
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if revision != "" {
		v += " " + revision
	}
	return v + " " + info.GoVersion
}
