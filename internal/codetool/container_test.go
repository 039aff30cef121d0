package codetool

import (
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestWhatARequestSaysOfItsContainer(t *testing.T) { // E13
	for raw, want := range map[string]string{
		`{"container":{"type":"auto"}}`: "",
		`{"container":{"type":"auto","file_ids":[],"memory_limit":null,"network_policy":{"type":"disabled"}},"allowed_callers":null}`: "",
		`{"container":"cntr_1","allowed_callers":["direct"]}`:                                                                         "cntr_1",
		`{"container":null}`: "",
		`{}`:                 "",
	} {
		options, err := ReadHosted([]byte(raw))
		if got := ContainerAsked(tool.Call{Options: options}); err != nil || got != want {
			t.Errorf("%s: %v, container %q", raw, err, got)
		}
	}
	for raw, want := range map[string]string{
		`{"container":7}`:              "container",
		`{"container":""}`:             "container",
		`{"container":{}}`:             "container.type",
		`{"container":{"type":"new"}}`: "container.type",
		`{"container":{"type":"auto","memory_limit":"4g"}}`:                                           "container.memory_limit",
		`{"container":{"type":"auto","file_ids":"file-1"}}`:                                           "container.file_ids",
		`{"container":{"type":"auto","network_policy":{"type":"allowlist"}}}`:                         "container.network_policy",
		`{"container":{"type":"auto","cpus":2}}`:                                                      "container.cpus",
		`{"container":{"type":"auto"},"allowed_callers":["direct","programmatic"]}`:                   "allowed_callers",
		`{"container":{"type":"auto"},"memory":"4g"}`:                                                 "memory",
		`{"container":{"type":"auto","file_ids":["f"` + strings.Repeat(`,"f"`, file.MaxGiven) + `]}}`: "container.file_ids",
	} {
		_, err := ReadHosted([]byte(raw))
		if wrong := (*catalog.OptionError)(nil); !errors.As(err, &wrong) || wrong.Member != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
