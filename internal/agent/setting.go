package agent

import (
	"fmt"
	"maps"
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

	field func(*org.Agents) any // the *int of a number, else a *string; nil of a secret one
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

// FallbackVisionModel is the default of VISION_MODEL.
const FallbackVisionModel = "gpt-4.1-mini"

// FallbackDefaultModel is the default of AGENT_DEFAULT_MODEL.
const FallbackDefaultModel = "gpt-5.4-mini"

// SettingKeys returns all keys, ordered by category and then by key.
func SettingKeys() []SettingKey {
	const agents, tools = "agents", "tools"
	return []SettingKey{
		{
			Key: DefaultModelKey, Category: agents, Default: FallbackDefaultModel, Doc: "Model of agents that are created without one.",
			field: func(a *org.Agents) any { return &a.DefaultModel },
		},
		{
			Key: MaxStepsKey, Category: agents, Default: strconv.Itoa(DefaultMaxSteps), Number: true, Min: 1, Max: MaxSteps,
			Doc: "max_steps of agents that set none.", field: func(a *org.Agents) any { return &a.MaxSteps },
		},
		{
			Key: TimeoutKey, Category: agents, Number: true, Min: 1, Max: int(MaxTimeout / time.Second),
			Doc:   "timeout_seconds of agents that set none. Without it, the deadline of the org.",
			field: func(a *org.Agents) any { return &a.TimeoutSeconds },
		},
		{
			Key: CompactionModelKey, Category: agents,
			Doc:   "Model that summarizes long sessions. Without it, compaction_model of the org, or the model of the agent.",
			field: func(a *org.Agents) any { return &a.CompactionModel },
		},
		{Key: ExaKey, Category: tools, Secret: true, Doc: "API key of Exa, for the tool web_search."},
		{Key: FirecrawlKey, Category: tools, Secret: true, Doc: "API key of Firecrawl, for the tool web_scrape."},
		{
			Key: VisionModelKey, Category: tools, Default: FallbackVisionModel, Doc: "Model that describes images, for the tool web_scrape.",
			field: func(a *org.Agents) any { return &a.VisionModel },
		},
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

// In returns the value in decimal or as a text; "" = it is not set there, or it is secret.
func (k SettingKey) In(a org.Agents) string {
	if k.Secret {
		return ""
	}
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
	k.put(a, value)
	a.SetAt = maps.Clone(a.SetAt)
	if value == "" {
		delete(a.SetAt, k.Key)
		return
	}
	if a.SetAt == nil {
		a.SetAt = map[string]int64{}
	}
	a.SetAt[k.Key] = at.UnixMilli()
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
		if !k.Secret && k.Check(k.In(a)) != nil {
			k.put(&a, k.Default)
		}
	}
	return a
}
