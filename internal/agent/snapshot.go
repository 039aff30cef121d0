package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Snapshot is what one version of an agent does, with all defaults filled in. A session stores it, and
// each run records Agent, Version and Digest. Its JSON has the rules of [Definition].
type Snapshot struct {
	Agent           string        `json:"agent"` // id
	Name            string        `json:"name"`
	Version         int           `json:"version"`
	Declared        bool          `json:"declared,omitempty"` // by the configuration file
	Digest          string        `json:"digest"`             // SHA-256 of the JSON of the definition and of its custom tools, in hexadecimal
	Model           string        `json:"model"`
	FallbackModel   string        `json:"fallback_model,omitempty"`   // "" = none
	CompactionModel string        `json:"compaction_model,omitempty"` // "" = that of the org, or Model
	SystemPrompt    string        `json:"system_prompt,omitempty"`
	MaxSteps        int           `json:"max_steps"`
	Timeout         time.Duration `json:"timeout_ns,omitempty"`  // of active time; 0 = the org's deadline
	Settings        Settings      `json:"settings,omitzero"`     // as the definition has them
	Servers         []Server      `json:"mcp_servers,omitempty"` // that are enabled; see [Snapshot.MCPServers]
	Hooks           []Hook        `json:"hooks,omitempty"`       // that are enabled, in the order in which they run

	Tools    []SnapshotTool    `json:"tools,omitempty"` // custom ones, see [Snapshot.HTTPTools]
	Builtins []SnapshotBuiltin `json:"builtin_tools,omitempty"`
}

// Resolve returns what a run of the agent does now. The defaults are those of [DefaultsOf]. Tools are the custom tools of the org,
// or those of them that the agent has. It returns [ErrArchived] for an archived agent, and an error if this build does not know all
// that is stored of it.
func (a Agent) Resolve(d org.Agents, tools []Tool) (Snapshot, error) {
	switch {
	case a.Unsupported != "":
		return Snapshot{}, fmt.Errorf("agent %s: %s", a.ID, a.Unsupported)
	case !a.ArchivedAt.IsZero():
		return Snapshot{}, fmt.Errorf("agent %s: %w", a.ID, ErrArchived)
	}
	text, err := a.Encode()
	if err != nil {
		return Snapshot{}, fmt.Errorf("agent %s: %w", a.ID, err)
	}
	resolved, err := a.resolveTools(tools)
	if err != nil {
		return Snapshot{}, fmt.Errorf("agent %s: %w", a.ID, err)
	}
	for _, t := range resolved {
		more, err := t.Tool.Encode()
		if err != nil {
			return Snapshot{}, fmt.Errorf("agent %s: tool %s: %w", a.ID, t.Tool.Name, err)
		}
		text = append(text, more...)
	}
	sum := sha256.Sum256(text)
	s := Snapshot{
		Agent: a.ID, Name: a.Name, Version: a.Version, Declared: a.Declared, Digest: hex.EncodeToString(sum[:]),
		Model: a.Model, FallbackModel: a.Settings.FallbackModel, CompactionModel: d.CompactionModel, SystemPrompt: a.SystemPrompt,
		MaxSteps: d.MaxSteps, Timeout: time.Duration(d.TimeoutSeconds) * time.Second, Settings: a.Settings,
		Hooks: a.OrderedHooks(), Tools: resolved, Builtins: a.resolveBuiltins(),
	}
	if n := a.Settings.MaxSteps; n != nil {
		s.MaxSteps = *n
	}
	if n := a.Settings.TimeoutSeconds; n != nil {
		s.Timeout = time.Duration(*n) * time.Second
	}
	for _, m := range a.Servers {
		if m.Settings.Enabled {
			s.Servers = append(s.Servers, m)
		}
	}
	return s, nil
}

// MCPServers returns the servers as those of the org. Only those of a declared agent may refer to the
// environment and to files of the gateway.
func (s Snapshot) MCPServers(orgID string) []org.MCPServer {
	var all []org.MCPServer
	for i, one := range s.Servers {
		m := one.Settings
		m.Org, m.Name, m.Position, m.FromFile = orgID, one.Name, i, s.Declared
		all = append(all, m)
	}
	return all
}
