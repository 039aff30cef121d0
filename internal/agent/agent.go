package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Prefix begins the ids of stored agents. The id of an agent that the configuration file declares is
// its name, which must not begin with Prefix.
const Prefix = "agent_"

// ServerPrefix begins the ids of the MCP servers of agents.
const ServerPrefix = "mcp_"

// Agent is an agent with its latest version.
type Agent struct {
	Org     string
	ID      string // unique in its org
	Version int    // of Definition, from 1 on
	Definition

	// Unsupported says what this build does not understand of the stored definition; "" = nothing.
	// An agent with it cannot be resolved or changed.
	Unsupported string

	Declared   bool      // by the configuration file; only its versions are stored
	ArchivedAt time.Time // zero = it is not archived
	CreatedAt  time.Time
	UpdatedAt  time.Time // of the latest version, or when it was archived or restored
}

// Version is one version of an agent.
type Version struct {
	Number int // from 1 on
	Definition
	Unsupported string    // as of [Agent]
	Principal   string    // who made it
	CreatedAt   time.Time // precision of one millisecond
}

// Definition is what a version of an agent says. Its JSON is what stores keep: a member must not
// change its meaning, and the zero value of a new one must mean what versions without it meant.
type Definition struct {
	Name         string   `json:"name"`                  // unique among the org's agents, archived ones included
	Description  string   `json:"description,omitempty"` // for people, and for models that may delegate to the agent
	Model        string   `json:"model"`
	SystemPrompt string   `json:"system_prompt,omitempty"`
	Settings     Settings `json:"settings,omitzero"`
	Servers      []Server `json:"mcp_servers,omitempty"` // in the order of their creation
	Hooks        []Hook   `json:"hooks,omitempty"`       // in the order of their creation; see [Definition.OrderedHooks]

	Tools []Assignment `json:"tools,omitempty"` // in the order of their assignment
}

// Settings are how an agent runs. A nil or empty one has the default of the org or of the gateway.
type Settings struct {
	Temperature      *float64 `json:"temperature,omitempty"`        // 0 to 2; nil = the model's own
	MaxSteps         *int     `json:"max_steps,omitempty"`          // rounds, 1 to 50; the last one has no tools
	MaxTokens        *int     `json:"max_tokens,omitempty"`         // output of one model call; nil = the model's own
	MaxContextTokens *int     `json:"max_context_tokens,omitempty"` // 1,000 to 256,000; nil = the model's window
	TimeoutSeconds   *int     `json:"timeout_seconds,omitempty"`    // of active time of a run, 1 to 86,400
	FallbackModel    string   `json:"fallback_model,omitempty"`     // after a rate limit or a failure of the model; "" = none
	ReasoningEffort  string   `json:"reasoning_effort,omitempty"`   // one of [ReasoningEfforts]; "" = the model's own
}

// Server is an MCP server of an agent. Its tools are listed at the start of each run.
type Server struct {
	ID       string        `json:"id"`       // unique in the agent; the name for a declared agent
	Name     string        `json:"name"`     // unique in the agent
	Settings org.MCPServer `json:"settings"` // without Org and Name; see [Snapshot.MCPServers]
}

// Limits of a definition.
const (
	MaxName         = 64        // characters
	MaxDescription  = 1_000     // characters
	MaxModel        = 256       // bytes
	MaxSystemPrompt = 64 << 10  // bytes
	MaxServers      = 16        // MCP servers
	MaxHooks        = 32        // hooks
	MaxDefinition   = 256 << 10 // bytes of its JSON
)

// Limits of the versions that a store keeps of an agent, beside the latest one. The oldest are deleted
// first. A session does not need them: it has a snapshot.
const (
	MaxVersions     = 100
	MaxVersionBytes = 1 << 20 // of the JSON of their definitions
)

// Range of max_steps, and its default. It counts rounds.
const (
	DefaultMaxSteps = 25
	MaxSteps        = 50
)

// MaxTimeout is the most that timeout_seconds can be.
const MaxTimeout = 24 * time.Hour

// ReasoningEfforts returns the values of reasoning_effort.
func ReasoningEfforts() []string {
	return []string{"none", "minimal", "low", "medium", "high", "xhigh"}
}

// FieldError says which member of a definition is wrong, and why.
type FieldError struct {
	Field   string // such as settings.max_steps or hooks[0].config.condition
	Message string // without the field
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// inside returns the error with the path of what the field is in.
func inside(path string, err error) error {
	if e, ok := err.(*FieldError); ok { //nolint:errorlint // as wrong returns it
		if e.Field == "" {
			return &FieldError{path, e.Message}
		}
		return &FieldError{path + "." + e.Field, e.Message}
	}
	return err
}

// Check returns a [*FieldError] for the first member that must not be stored. It does not check URLs of
// servers and hooks against the outbound policy, nor the settings of a server, which have the rules of
// the configuration file.
func (d Definition) Check() error {
	switch {
	case d.Name == "":
		return wrong("name", "is required")
	case utf8.RuneCountInString(d.Name) > MaxName || strings.TrimSpace(d.Name) != d.Name || !printable(d.Name, ""):
		return wrong("name", "must have 1 to %d characters, no control characters, and no space at its ends", MaxName)
	case utf8.RuneCountInString(d.Description) > MaxDescription || !printable(d.Description, "\n\r\t"):
		return wrong("description", "must have at most %d characters, and no control characters", MaxDescription)
	case len(d.SystemPrompt) > MaxSystemPrompt || !utf8.ValidString(d.SystemPrompt):
		return wrong("system_prompt", "has %d bytes, and at most %d are allowed", len(d.SystemPrompt), MaxSystemPrompt)
	}
	if err := checkModel("model", d.Model); err != nil {
		return err
	}
	if err := d.Settings.check(); err != nil {
		return inside("settings", err)
	}
	if err := d.checkServers(); err != nil {
		return err
	}
	if err := d.checkTools(); err != nil {
		return err
	}
	if len(d.Hooks) > MaxHooks {
		return wrong("hooks", "an agent has at most %d hooks", MaxHooks)
	}
	for i, h := range d.Hooks {
		if err := h.Check(); err != nil {
			return inside(fmt.Sprintf("hooks[%d]", i), err)
		}
	}
	if n := d.size(); n > MaxDefinition {
		return wrong("", "the agent has %d bytes with its MCP servers, tools and hooks, and at most %d are allowed", n, MaxDefinition)
	}
	return nil
}

func checkModel(field, model string) error {
	if model == "" || len(model) > MaxModel || strings.ContainsFunc(model, unicode.IsSpace) || !printable(model, "") {
		return wrong(field, "must be the name of a model: 1 to %d bytes, without spaces", MaxModel)
	}
	return nil
}

func printable(text, but string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(but, r) })
}

func (d Definition) checkServers() error {
	if len(d.Servers) > MaxServers {
		return wrong("mcp_servers", "an agent has at most %d MCP servers", MaxServers)
	}
	first := map[string]int{}
	for i, s := range d.Servers {
		if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(s.Name) {
			return wrong(fmt.Sprintf("mcp_servers[%d].name", i), "must have 1 to 64 letters, digits, dots, underscores or hyphens, and begin with a letter or a digit")
		}
		if j, taken := first[s.Name]; taken {
			return wrong(fmt.Sprintf("mcp_servers[%d].name", i), "%q is already used by mcp_servers[%d]", s.Name, j)
		}
		first[s.Name] = i
	}
	return nil
}

func (s Settings) check() error {
	if t := s.Temperature; t != nil && (*t < 0 || *t > 2) {
		return wrong("temperature", "must be from 0 to 2")
	}
	for _, n := range []struct {
		name        string
		value       *int
		least, most int
	}{
		{"max_steps", s.MaxSteps, 1, MaxSteps},
		{"max_tokens", s.MaxTokens, 1, 1_000_000},
		{"max_context_tokens", s.MaxContextTokens, 1_000, 256_000},
		{"timeout_seconds", s.TimeoutSeconds, 1, int(MaxTimeout / time.Second)},
	} {
		if n.value != nil && (*n.value < n.least || *n.value > n.most) {
			return wrong(n.name, "must be a whole number from %d to %d", n.least, n.most)
		}
	}
	if s.FallbackModel != "" {
		if err := checkModel("fallback_model", s.FallbackModel); err != nil {
			return err
		}
	}
	if s.ReasoningEffort != "" && !slices.Contains(ReasoningEfforts(), s.ReasoningEffort) {
		return wrong("reasoning_effort", "must be one of %s", strings.Join(ReasoningEfforts(), ", "))
	}
	return nil
}

// Encode returns the JSON that stores keep.
func (d Definition) Encode() ([]byte, error) { return json.Marshal(d) }

func (d Definition) size() int {
	text, _ := d.Encode() // a checked definition encodes
	return len(text)
}

// Equal reports whether two definitions say the same.
func (d Definition) Equal(other Definition) bool {
	a, err := d.Encode()
	b, again := other.Encode()
	return err == nil && again == nil && string(a) == string(b)
}

// Decode returns what [Definition.Encode] returned. Unsupported says what this build does not know of
// a definition that another one has stored.
func Decode(text []byte) (d Definition, unsupported string, err error) {
	strict := json.NewDecoder(strings.NewReader(string(text)))
	strict.DisallowUnknownFields()
	unknown := strict.Decode(&d)
	if unknown == nil {
		return d, "", nil
	}
	d = Definition{}
	err = json.Unmarshal(text, &d)
	return d, "this build does not know all that is stored of the agent: " + unknown.Error(), err
}

// Clone returns a copy that shares no memory with d.
func (d Definition) Clone() Definition {
	text, err := d.Encode()
	var c Definition
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		panic(err) // a Definition has plain fields only
	}
	return c
}

// Outdated returns how many of the sizes, of the JSON of versions before the latest one from the oldest
// on, a store deletes to keep the limits.
func Outdated(sizes []int) int {
	kept := 0
	for i, n := range slices.Backward(sizes) {
		if kept += n; kept > MaxVersionBytes || len(sizes)-i > MaxVersions {
			return i + 1
		}
	}
	return 0
}
