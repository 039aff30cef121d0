package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func valid() Definition { return Definition{Name: "helper", Model: "m"} }

// Each member has its limits, and the error names it. // N01
func TestDefinitionsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Definition)
		field  string
	}{
		"no name":              {func(d *Definition) { d.Name = "" }, "name"},
		"a space at the end":   {func(d *Definition) { d.Name = "x " }, "name"},
		"a line break":         {func(d *Definition) { d.Name = "a\nb" }, "name"},
		"a long name":          {func(d *Definition) { d.Name = strings.Repeat("é", MaxName+1) }, "name"},
		"a long description":   {func(d *Definition) { d.Description = strings.Repeat("x", MaxDescription+1) }, "description"},
		"no model":             {func(d *Definition) { d.Model = "" }, "model"},
		"a model with spaces":  {func(d *Definition) { d.Model = "a b" }, "model"},
		"a long prompt":        {func(d *Definition) { d.SystemPrompt = strings.Repeat("x", MaxSystemPrompt+1) }, "system_prompt"},
		"a hot temperature":    {func(d *Definition) { d.Settings.Temperature = new(2.1) }, "settings.temperature"},
		"no steps":             {func(d *Definition) { d.Settings.MaxSteps = new(0) }, "settings.max_steps"},
		"too many steps":       {func(d *Definition) { d.Settings.MaxSteps = new(51) }, "settings.max_steps"},
		"no output":            {func(d *Definition) { d.Settings.MaxTokens = new(0) }, "settings.max_tokens"},
		"a small context":      {func(d *Definition) { d.Settings.MaxContextTokens = new(999) }, "settings.max_context_tokens"},
		"a large context":      {func(d *Definition) { d.Settings.MaxContextTokens = new(256_001) }, "settings.max_context_tokens"},
		"a long timeout":       {func(d *Definition) { d.Settings.TimeoutSeconds = new(86_401) }, "settings.timeout_seconds"},
		"a bad fallback":       {func(d *Definition) { d.Settings.FallbackModel = "a b" }, "settings.fallback_model"},
		"an unknown effort":    {func(d *Definition) { d.Settings.ReasoningEffort = "much" }, "settings.reasoning_effort"},
		"a server twice":       {func(d *Definition) { d.Servers = []Server{{Name: "s"}, {Name: "s"}} }, "mcp_servers[1].name"},
		"a server with spaces": {func(d *Definition) { d.Servers = []Server{{Name: "a b"}} }, "mcp_servers[0].name"},
		"too many servers":     {func(d *Definition) { d.Servers = make([]Server, MaxServers+1) }, "mcp_servers"},
		"too many hooks":       {func(d *Definition) { d.Hooks = make([]Hook, MaxHooks+1) }, "hooks"},
		"a bad hook":           {func(d *Definition) { d.Hooks = []Hook{{Event: "before_run"}} }, "hooks[0].event"},
		"too large together": {func(d *Definition) {
			for range MaxServers {
				d.Servers = append(d.Servers, Server{Name: strings.Repeat("s", len(d.Servers)+1), Settings: org.MCPServer{Tools: []string{strings.Repeat("x", 20_000)}}})
			}
		}, ""},
	} {
		d := valid()
		c.change(&d)
		var wrong *FieldError
		if err := d.Check(); !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%s: %v, want an error in %q", name, err, c.field)
		}
	}
	d := valid()
	d.Settings = Settings{new(0.0), new(50), new(1), new(1_000), new(86_400), "n", "high"}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
}

// What can be a hook, and what is refused when it is created. // H14 H15 H18
func TestHooksThatAreRefused(t *testing.T) {
	rules := func(conditions ...string) []HookRule {
		out := []HookRule{}
		for _, c := range conditions {
			out = append(out, HookRule{Condition: c})
		}
		return out
	}
	http := &HTTPHook{URL: "https://example.com/hook"}
	const fine = "a CONTAINS x"
	for name, c := range map[string]struct {
		hook  Hook
		field string // "" = it is not refused
	}{
		"http":                         {Hook{Event: OnRunStart, HTTP: http}, ""},
		"http afterwards":              {Hook{Event: OnRunComplete, HTTP: http}, ""},
		"a rule":                       {Hook{Event: PreToolUse, Rules: rules(fine), Matcher: "pay_*"}, ""},
		"a rule on the answer":         {Hook{Event: PreResponse, Rules: rules("content MATCHES [0-9]{16}")}, ""},
		"an approval":                  {Hook{Event: PreToolUse, Approval: &ApprovalHook{}}, ""},
		"an approval of a delegation":  {Hook{Event: OnDelegation, Approval: &ApprovalHook{TimeoutSeconds: 1}}, "event"},
		"an unknown event":             {Hook{Event: "before_run", HTTP: http}, "event"},
		"no type":                      {Hook{Event: PreToolUse}, "type"},
		"a rule after the tool":        {Hook{Event: PostToolUse, Rules: rules(fine)}, "type"},
		"a denial after the run":       {Hook{Event: OnRunComplete, HTTP: &HTTPHook{URL: http.URL, OnError: HookDeny}}, "config.on_error"},
		"a rule after the run":         {Hook{Event: OnRunComplete, Rules: rules(fine)}, "type"},
		"an approval after the tool":   {Hook{Event: PostToolUse, Approval: &ApprovalHook{}}, "type"},
		"an approval of the answer":    {Hook{Event: PreResponse, Approval: &ApprovalHook{}}, "type"},
		"an approval of the start":     {Hook{Event: OnRunStart, Approval: &ApprovalHook{}}, "type"},
		"a matcher without a tool":     {Hook{Event: PreResponse, HTTP: http, Matcher: "x"}, "matcher"},
		"a matcher with a space":       {Hook{Event: PreToolUse, HTTP: http, Matcher: "a b"}, "matcher"},
		"a malformed glob":             {Hook{Event: PreToolUse, HTTP: http, Matcher: "pay["}, "matcher"},
		"a negative position":          {Hook{Event: PreToolUse, HTTP: http, Position: -1}, "position"},
		"no rules":                     {Hook{Event: PreToolUse, Rules: rules()}, "config.rules"},
		"a rule that is wrong":         {Hook{Event: PreToolUse, Rules: rules("a IS x")}, "config.condition"},
		"a second rule that is wrong":  {Hook{Event: PreToolUse, Rules: rules(fine, "a IS x")}, "config.rules[1].condition"},
		"no URL":                       {Hook{Event: PreToolUse, HTTP: &HTTPHook{}}, "config.url"},
		"a relative URL":               {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: "/hook"}}, "config.url"},
		"a URL with a user":            {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: "https://a:b@example.com"}}, "config.url"},
		"a long timeout":               {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: http.URL, TimeoutSeconds: 31}}, "config.timeout_seconds"},
		"an unknown on_error":          {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: http.URL, OnError: "open"}}, "config.on_error"},
		"a signature in the open":      {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: http.URL, Secret: "whsec_x"}}, "config.secret"},
		"a signature of the operator":  {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: http.URL, Secret: "env:X"}}, "config.secret"},
		"a signature of the vault":     {Hook{Event: PreToolUse, HTTP: &HTTPHook{URL: http.URL, Secret: "secret:x"}}, ""},
		"an approval that never ends":  {Hook{Event: PreToolUse, Approval: &ApprovalHook{TimeoutSeconds: 1 << 40}}, "config.timeout"},
		"an approval with a long text": {Hook{Event: PreToolUse, Approval: &ApprovalHook{Message: strings.Repeat("x", 1001)}}, "config.message"},
	} {
		err := c.hook.Check()
		var wrong *FieldError
		if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &wrong) || wrong.Field != c.field) {
			t.Errorf("%s: %v, want an error in %q", name, err, c.field)
		}
	}
}

// What the hooks of an event can do. // H15
func TestWhatHooksCanDo(t *testing.T) {
	got := map[HookEvent][2]bool{}
	for _, e := range HookEvents() {
		got[e] = [2]bool{e.MayBlock(), e.MayModify()}
	}
	want := map[HookEvent][2]bool{
		OnRunStart: {true, false}, PreToolUse: {true, true}, PostToolUse: {false, true}, OnDelegation: {true, false},
		PreResponse: {true, true}, OnRunComplete: {false, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// By position, then by their creation, then as they were added. // H22
func TestHooksAreOrdered(t *testing.T) {
	d := Definition{Hooks: []Hook{
		{ID: "late", Enabled: true, CreatedAt: 3}, {ID: "last", Enabled: true, Position: 1}, {ID: "off", CreatedAt: 1},
		{ID: "early", Enabled: true, CreatedAt: 2}, {ID: "same", Enabled: true, CreatedAt: 3},
	}}
	var got []string
	for _, h := range d.OrderedHooks() {
		got = append(got, h.ID)
	}
	if diff := cmp.Diff([]string{"early", "late", "same", "last"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestResolveFillsInDefaults(t *testing.T) {
	d := valid()
	d.Servers = []Server{{ID: "1", Name: "off"}, {ID: "2", Name: "on", Settings: org.MCPServer{URL: "https://example.com", Enabled: true}}}
	d.Hooks = []Hook{{ID: "off"}, {ID: "on", Enabled: true}}
	a := Agent{Org: "o", ID: "agent_1", Version: 3, Definition: d}
	defaults := DefaultsOf(org.Agents{MaxSteps: 7, TimeoutSeconds: 60, CompactionModel: "small"})
	got, err := a.Resolve(defaults, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Agent != "agent_1" || got.Version != 3 || got.MaxSteps != 7 || got.Timeout != time.Minute || got.CompactionModel != "small" || len(got.Digest) != 64 || len(got.Hooks) != 1 {
		t.Errorf("%+v", got)
	}
	want := []org.MCPServer{{Org: "o", Name: "on", URL: "https://example.com", Enabled: true}}
	if diff := cmp.Diff(want, got.MCPServers("o")); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(got)
	var again Snapshot
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("a stored snapshot differs: %v %s", err, diff)
	}
	a.Settings = Settings{MaxSteps: new(2), TimeoutSeconds: new(5)}
	if got, err := a.Resolve(defaults, nil); err != nil || got.MaxSteps != 2 || got.Timeout != 5*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	refused := org.Agents{DefaultModel: "a b", MaxSteps: 1000, CompactionModel: " "}
	fallback := org.Agents{DefaultModel: "gpt-5.4-mini", MaxSteps: 25, VisionModel: "gpt-4.1-mini"}
	if got := DefaultsOf(refused); !got.Same(fallback) {
		t.Errorf("%+v", got)
	}
	a.ArchivedAt = time.UnixMilli(1)
	if _, err := a.Resolve(defaults, nil); !errors.Is(err, ErrArchived) {
		t.Error(err)
	}
}

// A definition of a later build is shown and not run.
func TestADefinitionOfALaterBuildIsNotResolved(t *testing.T) {
	for _, text := range []string{
		`{"name":"x","model":"m","later":1}`, `{"name":"x","model":"m","hooks":[{"id":"h","event":"PreToolUse","enabled":true,"later":{}}]}`,
		`{"name":"x","model":"m","mcp_servers":[{"id":"s","name":"s","settings":{"url":"u","quarantine":true}}]}`,
	} {
		d, unsupported, err := Decode([]byte(text))
		if err != nil || unsupported == "" || d.Name != "x" {
			t.Errorf("%s: %+v, %q, %v", text, d, unsupported, err)
		}
		if s, err := (Agent{Definition: d, Unsupported: unsupported}).Resolve(org.Agents{}, nil); err == nil {
			t.Errorf("%s: resolved as %+v", text, s)
		}
	}
}

func TestOutdatedVersions(t *testing.T) {
	many := make([]int, MaxVersions+3)
	for name, c := range map[string]struct {
		sizes []int
		want  int
	}{
		"none":  {nil, 0},
		"few":   {[]int{1, 2}, 0},
		"many":  {many, 3},
		"large": {[]int{1, MaxVersionBytes, MaxVersionBytes / 2, MaxVersionBytes / 2}, 2},
		"huge":  {[]int{MaxVersionBytes + 1}, 1},
	} {
		if got := Outdated(c.sizes); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Each key has its limits. // N12
func TestSettingsHaveLimits(t *testing.T) {
	for _, c := range []struct {
		key, value string
		ok         bool
	}{
		{MaxStepsKey, "1", true}, {MaxStepsKey, "50", true}, {MaxStepsKey, "51", false}, {MaxStepsKey, "0", false}, {MaxStepsKey, "01", false}, {MaxStepsKey, "x", false},
		{DefaultModelKey, "gpt", true}, {DefaultModelKey, "a b", false}, {DefaultModelKey, "", false}, {ExaKey, "a key", true}, {ExaKey, "", false},
	} {
		k, found := FindSetting(c.key)
		if err := k.Check(c.value); !found || (err == nil) != c.ok {
			t.Errorf("%s %q: %v", c.key, c.value, err)
		}
	}
	if _, found := FindSetting("exa_api_key"); found {
		t.Error("keys are found in lower case")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"x","model":"m","settings":{"temperature":1e-3,"max_steps":3},"hooks":[{"id":"h","event":"PreToolUse","enabled":true,"rules":[{"condition":"a CONTAINS b"}]}]}`))
	f.Add([]byte(`{"name":"x","model":"m","mcp_servers":[{"id":"s","name":"s","settings":{"url":"https://x","enabled":true,"tools":null}}]}`))
	f.Add([]byte(`{"later":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, unsupported, err := Decode(text)
		if err != nil || unsupported != "" || d.Check() != nil {
			return
		}
		stored, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, unsupported, err := Decode(stored)
		if err != nil || unsupported != "" || !again.Equal(d) {
			t.Errorf("%s is stored as %s, %q, %v", text, stored, unsupported, err)
		}
	})
}
