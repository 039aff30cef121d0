package responses

import (
	"encoding/json"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/model"
)

// The limits on the MCP servers of one request.
const (
	maxMCPServers  = 20
	maxMCPHeaders  = 32
	maxMCPHeader   = 8 << 10 // bytes of one value
	maxServerLabel = 64
)

// mcpTool is a tool of type mcp.
type mcpTool struct {
	at       string // its place in the request, such as tools[0]
	members  map[string]json.RawMessage
	declared run.RequestServer
	allowed  mcpFilter
}

// decodeMCPTool reads the tool of type mcp with this index and adds its server to the
// request. It returns the members that a run cannot carry.
func decodeMCPTool(req *run.Request, index int, raw json.RawMessage) (dropped []string, err error) {
	m := &mcpTool{at: fmt.Sprintf("tools[%d]", index)}
	if err := json.Unmarshal(raw, &m.members); err != nil {
		return nil, fault.New(fault.Invalid, "invalid_type", "%s is not an object", m.at).In(m.at)
	}
	for name, value := range m.members {
		if string(value) == "null" {
			delete(m.members, name)
		}
	}
	for _, step := range []func(*run.Request) error{m.checkMembers, m.decodeLabel, m.decodeURL, m.decodeHeaders, m.decodeAllowed, m.decodeApproval} {
		if err := step(req); err != nil {
			return nil, err
		}
	}
	if len(req.RequestServers) == maxMCPServers {
		return nil, fault.New(fault.Invalid, "invalid_value", "%s: a request may declare at most %d MCP servers", m.at, maxMCPServers).In(m.at)
	}
	req.RequestServers = append(req.RequestServers, m.declared)
	if m.members["server_description"] != nil {
		dropped = append(dropped, m.at+".server_description")
	}
	return dropped, nil
}

// place returns the place of a member in the request.
func (m *mcpTool) place(member string) string { return m.at + "." + member }

// text returns a member that is a string; "" if it is absent.
func (m *mcpTool) text(member string) (string, error) {
	value, ok := m.members[member]
	if !ok {
		return "", nil
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return "", fault.New(fault.Invalid, "invalid_type", "%s.%s is not a string", m.at, member).In(m.place(member))
	}
	return text, nil
}

// checkMembers refuses members that the gateway does not know. false means the same as none.
func (m *mcpTool) checkMembers(*run.Request) error {
	known := []string{"type", "server_label", "server_url", "server_description", "authorization", "headers", "allowed_tools", "require_approval"}
	var unknown []string
	for name, value := range m.members {
		if !slices.Contains(known, name) && string(value) != "false" {
			unknown = append(unknown, name)
		}
	}
	if unknown == nil {
		return nil
	}
	slices.Sort(unknown)
	return fault.New(fault.Invalid, "unsupported_parameter", "%s.%s is not supported; give the address of the MCP server as server_url", m.at, unknown[0]).In(m.place(unknown[0]))
}

func (m *mcpTool) decodeLabel(req *run.Request) error {
	label, err := m.text("server_label")
	if err != nil {
		return err
	}
	same := func(d run.RequestServer) bool { return d.Label == label }
	switch {
	case label == "":
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no server_label", m.at).In(m.place("server_label"))
	case !validLabel(label):
		return fault.New(fault.Invalid, "invalid_value",
			"%s.server_label must begin with a letter and have at most %d letters, digits, _ and -", m.at, maxServerLabel).In(m.place("server_label"))

	case slices.ContainsFunc(req.RequestServers, same):
		return fault.New(fault.Invalid, "invalid_value", "%s.server_label is %q, like that of another tool; labels must differ", m.at, label).In(m.place("server_label"))
	}
	m.declared.Label = label
	return nil
}

func validLabel(label string) bool {
	for i, c := range []byte(label) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '_' || c == '-')) {
			return false
		}
	}
	return len(label) <= maxServerLabel
}

// decodeURL reads the address. Whether the gateway may connect to it is decided when it does.
func (m *mcpTool) decodeURL(req *run.Request) error {
	text, err := m.text("server_url")
	if err != nil {
		return err
	}
	_, given := m.members["server_url"]
	switch {
	case !given && !req.Has(m.declared.Label):
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no server_url, and the org has no MCP server %q", m.at, m.declared.Label).In(m.place("server_url"))
	case !given:
		return nil
	case !validServerURL(text):
		return fault.New(fault.Invalid, "invalid_value", "%s.server_url must be an http or https URL without a user name, a password and a fragment", m.at).In(m.place("server_url"))
	}
	m.declared.URL = secret.NewValue(text)
	return nil
}

func validServerURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && !strings.Contains(text, "#")
}

// decodeHeaders reads the headers and the authorization, which are credentials.
func (m *mcpTool) decodeHeaders(*run.Request) error {
	var headers map[string]string
	if value, ok := m.members["headers"]; ok && json.Unmarshal(value, &headers) != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s.headers is not an object of strings", m.at).In(m.place("headers"))
	}
	token, err := m.text("authorization")
	if err != nil {
		return err
	}
	if m.declared.URL.IsZero() && (len(headers) > 0 || token != "") {
		return fault.New(fault.Invalid, "invalid_value", "%s has credentials and no server_url; the org's MCP server has its own", m.at).In(m.place("server_url"))
	}
	if len(headers) > maxMCPHeaders {
		return fault.New(fault.Invalid, "invalid_value", "%s.headers has more than %d headers", m.at, maxMCPHeaders).In(m.place("headers"))
	}
	m.declared.Headers = map[string]secret.Value{}
	for name, value := range headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		_, twice := m.declared.Headers[canonical]
		if twice || !validHeader(name, value) {
			return fault.New(fault.Invalid, "invalid_value", "%s.headers has a header that cannot be sent: its name is invalid, reserved or repeated, or its value is", m.at).In(m.place("headers"))
		}
		m.declared.Headers[canonical] = secret.NewValue(value)
	}
	return m.authorize(token)
}

// authorize adds the token as a bearer token.
func (m *mcpTool) authorize(token string) error {
	if token == "" {
		return nil
	}
	if _, twice := m.declared.Headers["Authorization"]; twice {
		return fault.New(fault.Invalid, "invalid_value", "%s has authorization and a header Authorization; give one of them", m.at).In(m.place("authorization"))
	}
	if !strings.HasPrefix(strings.ToLower(token), "bearer ") {
		token = "Bearer " + token
	}
	if !validHeader("Authorization", token) {
		return fault.New(fault.Invalid, "invalid_value", "%s.authorization cannot be sent in a header", m.at).In(m.place("authorization"))
	}
	m.declared.Headers["Authorization"] = secret.NewValue(token)
	return nil
}

// validHeader reports whether the gateway sends the header to an MCP server.
func validHeader(name, value string) bool {
	const symbols = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(symbols, c) >= 0) {
			return false
		}
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return name != "" && len(name) <= 256 && len(value) <= maxMCPHeader && !egress.ForbiddenHeader(name)
}

// mcpFilter selects tools: those with one of the names and this annotation. An absent
// condition selects all.
type mcpFilter struct {
	Names    *[]string `json:"tool_names"`
	ReadOnly *bool     `json:"read_only"`
}

// UnmarshalJSON implements json.Unmarshaler. A filter is a list of names, or an object.
func (f *mcpFilter) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &f.Names)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	for name, value := range members {
		var err error
		switch name {
		case "tool_names":
			err = json.Unmarshal(value, &f.Names)
		case "read_only":
			err = json.Unmarshal(value, &f.ReadOnly)
		default:
			err = fmt.Errorf("%q is not a condition", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mcpTool) decodeAllowed(*run.Request) error {
	if value, ok := m.members["allowed_tools"]; ok && json.Unmarshal(value, &m.allowed) != nil {
		return fault.New(fault.Invalid, "invalid_value", "%s.allowed_tools must be a list of names, or an object with tool_names and read_only", m.at).In(m.place("allowed_tools"))
	}
	if m.allowed.Names != nil {
		m.declared.Tools = append([]string{}, *m.allowed.Names...)
	}
	m.declared.ReadOnly = m.allowed.ReadOnly
	return nil
}

const notApproval = `%s.require_approval must be "never", "always", or an object with always and never`

// decodeApproval reads which calls wait for approval: all, unless the tool says otherwise.
func (m *mcpTool) decodeApproval(*run.Request) error {
	m.declared.Approval = policy.Approval{Rest: true}
	value := m.members["require_approval"]
	var word string
	switch {
	case value == nil:
		return nil
	case json.Unmarshal(value, &word) == nil && word == "always":
		return nil
	case word == "never":
		m.declared.Approval.Rest = false
		return nil
	case value[0] == '"':
		return fault.New(fault.Invalid, "invalid_value", notApproval, m.at).In(m.place("require_approval"))
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return fault.New(fault.Invalid, "invalid_type", notApproval, m.at).In(m.place("require_approval"))
	}
	all := false
	for name, value := range members {
		into := map[string]**policy.Tools{"always": &m.declared.Approval.Always, "never": &m.declared.Approval.Never}[name]
		var f mcpFilter
		switch {
		case into == nil:
			return fault.New(fault.Invalid, "invalid_value", notApproval, m.at).In(m.place("require_approval"))
		case string(value) == "null":
		case json.Unmarshal(value, &f) != nil:
			return fault.New(fault.Invalid, "invalid_value", "%s.require_approval.%s must be an object with tool_names and read_only", m.at, name).In(m.place("require_approval"))
		case name == "always" && f.Names == nil && f.ReadOnly == nil: // without a condition, all
			all = true
		default:
			*into = f.tools()
		}
	}
	if all {
		m.declared.Approval = policy.Approval{Rest: true}
	}
	return nil
}

// tools returns the filter as a rule has it.
func (f mcpFilter) tools() *policy.Tools {
	out := &policy.Tools{ReadOnly: f.ReadOnly}
	if f.Names != nil {
		out.Names = append([]string{}, *f.Names...)
	}
	return out
}

// echoMCPTool returns a tool of type mcp as the response repeats it: without credentials,
// and without the path of the URL, which may contain one.
func echoMCPTool(raw json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return raw
	}
	delete(members, "authorization")
	members["headers"] = json.RawMessage("null")
	if members["allowed_tools"] == nil {
		members["allowed_tools"] = json.RawMessage("null")
	}
	var text string
	if json.Unmarshal(members["server_url"], &text) == nil {
		members["server_url"], _ = json.Marshal(redactedURL(text))
	}
	out, err := json.Marshal(members)
	if err != nil {
		return nil // unreachable: the members were decoded from JSON
	}
	return out
}

func redactedURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "redacted"
	}
	out := u.Scheme + "://" + u.Host
	if strings.Trim(u.RequestURI(), "/") != "" {
		out += "/redacted"
	}
	return out
}

// wireMCPChoice names tools of a server, in tool_choice.
type wireMCPChoice struct {
	ServerLabel string `json:"server_label"`
	Name        string `json:"name"`
}

// decodeMCPChoice reads an object of type mcp in tool_choice, or in its list of allowed
// tools, which is at this place.
func decodeMCPChoice(req *run.Request, at string, raw json.RawMessage) (run.ServerTool, error) {
	var w wireMCPChoice
	if json.Unmarshal(raw, &w) != nil {
		return run.ServerTool{}, fault.New(fault.Invalid, "invalid_type", "%s: server_label and name must be strings", at).In(at)
	}
	i := slices.IndexFunc(req.RequestServers, func(d run.RequestServer) bool { return d.Label == w.ServerLabel })
	if i < 0 {
		return run.ServerTool{}, fault.New(fault.Invalid, "invalid_value", "%s.server_label is %q, but no tool of type mcp has this label", at, w.ServerLabel).In(at + ".server_label")
	}
	return run.ServerTool{Server: req.RequestServers[i].Server(), Tool: w.Name}, nil
}

// chooseMCP makes a tool_choice of type mcp the choice of the request: one tool of the
// server, or any of them.
func chooseMCP(req *run.Request, raw json.RawMessage) error {
	only, err := decodeMCPChoice(req, "tool_choice", raw)
	if err != nil {
		return err
	}
	req.ToolChoice = model.ToolChoice{Mode: model.ChooseRequired}
	if only.Tool != "" {
		req.ToolChoice.Mode = model.ChooseNamed
	}
	req.OnlyOf = []run.ServerTool{only}
	return nil
}
