package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// SettingKey is a setting of an org for its agents. The value of a secret one is in the org's vault, under its key.
type SettingKey struct {
	Key      string
	Category string // "agents" or "tools"
	Default  string // of texts and numbers; "" = none
	Secret   bool   // stored in the vault, and never shown
	Number   bool   // a whole number from Min to Max
	Min, Max int
	Doc      string
}

// The keys of settings.
const (
	DefaultModelKey    = "AGENT_DEFAULT_MODEL"
	MaxStepsKey        = "AGENT_MAX_STEPS"
	TimeoutKey         = "AGENT_TIMEOUT_SECONDS"
	CompactionModelKey = "COMPACTION_MODEL"
	VisionModelKey     = "VISION_MODEL"
	ExaKey             = "EXA_API_KEY"
	FirecrawlKey       = "FIRECRAWL_API_KEY"
)

// SettingKeys returns all keys, ordered by category and then by key.
func SettingKeys() []SettingKey {
	return []SettingKey{
		{Key: DefaultModelKey, Category: "agents", Default: "gpt-5.4-mini", Doc: "Model of agents that are created without one."},
		{Key: MaxStepsKey, Category: "agents", Default: strconv.Itoa(DefaultMaxSteps), Number: true, Min: 1, Max: MaxSteps, Doc: "max_steps of agents that set none."},
		{Key: TimeoutKey, Category: "agents", Number: true, Min: 1, Max: int(MaxTimeout / time.Second), Doc: "timeout_seconds of agents that set none. Without it, the deadline of the org."},
		{Key: CompactionModelKey, Category: "agents", Doc: "Model that summarizes long sessions. Without it, compaction_model of the org, or the model of the agent."},
		{Key: ExaKey, Category: "tools", Secret: true, Doc: "API key of Exa, for the tool web_search."},
		{Key: FirecrawlKey, Category: "tools", Secret: true, Doc: "API key of Firecrawl, for the tool web_scrape."},
		{Key: VisionModelKey, Category: "tools", Default: "gpt-4.1-mini", Doc: "Model that describes images, for the tool web_scrape."},
	}
}

// FindSetting returns the key with a name.
func FindSetting(name string) (SettingKey, bool) {
	all := SettingKeys()
	i := slices.IndexFunc(all, func(k SettingKey) bool { return k.Key == name })
	if i < 0 {
		return SettingKey{}, false
	}
	return all[i], true
}

// Check returns an error, without the value, unless the setting can have it.
func (k SettingKey) Check(value string) error {
	switch {
	case k.Secret:
		return secret.NewValue(value).Check()
	case k.Number:
		n, err := strconv.Atoi(value)
		if err != nil || n < k.Min || n > k.Max || strconv.Itoa(n) != value {
			return fmt.Errorf("must be a whole number from %d to %d", k.Min, k.Max)
		}
		return nil
	}
	if err := checkModel("", value); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), ": "))
	}
	return nil
}

// field returns what has the setting: the *int of a number, else a *string; nil of a secret one.
func (k SettingKey) field(a *org.Agents) any {
	return map[string]any{
		DefaultModelKey: &a.DefaultModel, MaxStepsKey: &a.MaxSteps, TimeoutKey: &a.TimeoutSeconds,
		CompactionModelKey: &a.CompactionModel, VisionModelKey: &a.VisionModel,
	}[k.Key]
}

// In returns the value in decimal or as a text; "" = it is not set there, or it is secret.
func (k SettingKey) In(a org.Agents) string {
	switch v := k.field(&a).(type) {
	case *string:
		return *v
	case *int:
		if *v != 0 {
			return strconv.Itoa(*v)
		}
	}
	return ""
}

// Set sets the value of a setting that is not secret. It must pass Check, or be "": then the setting is not set any more.
func (k SettingKey) Set(a *org.Agents, value string, at time.Time) {
	if k.put(a, value); a.SetAt == nil {
		a.SetAt = map[string]int64{}
	}
	if a.SetAt[k.Key] = at.UnixMilli(); value == "" {
		delete(a.SetAt, k.Key)
	}
}

func (k SettingKey) put(a *org.Agents, value string) {
	switch v := k.field(a).(type) {
	case *string:
		*v = value
	case *int:
		*v, _ = strconv.Atoi(value) // "" is 0
	}
}

// DefaultsOf returns what holds for agents that say nothing: a setting that is not set, or that this build refuses, has the default
// of the gateway.
func DefaultsOf(a org.Agents) org.Agents {
	for _, k := range SettingKeys() {
		if k.Check(k.In(a)) != nil {
			k.put(&a, k.Default)
		}
	}
	return a
}
