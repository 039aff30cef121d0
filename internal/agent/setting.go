package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Setting is a setting of an org for its agents. The values of secret ones are in the org's vault,
// under their key.
type Setting struct {
	Key       string
	Value     string // of a number in decimal
	UpdatedAt time.Time
}

// SettingKey is what a setting can be.
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

// FallbackVisionModel is the default of VISION_MODEL.
const FallbackVisionModel = "gpt-4.1-mini"

// FallbackDefaultModel is the default of AGENT_DEFAULT_MODEL.
const FallbackDefaultModel = "gpt-5.4-mini"

// SettingKeys returns all keys, ordered by category and then by key.
func SettingKeys() []SettingKey {
	return []SettingKey{
		{Key: DefaultModelKey, Category: "agents", Default: FallbackDefaultModel, Doc: "Model of agents that are created without one."},
		{Key: MaxStepsKey, Category: "agents", Default: strconv.Itoa(DefaultMaxSteps), Number: true, Min: 1, Max: MaxSteps, Doc: "max_steps of agents that set none."},
		{Key: TimeoutKey, Category: "agents", Number: true, Min: 1, Max: int(MaxTimeout / time.Second), Doc: "timeout_seconds of agents that set none. Without it, the deadline of the org."},
		{Key: CompactionModelKey, Category: "agents", Doc: "Model that summarizes long sessions. Without it, compaction_model of the org, or the model of the agent."},
		{Key: ExaKey, Category: "tools", Secret: true, Doc: "API key of Exa, for the tool web_search."},
		{Key: FirecrawlKey, Category: "tools", Secret: true, Doc: "API key of Firecrawl, for the tool web_scrape."},
		{Key: VisionModelKey, Category: "tools", Default: FallbackVisionModel, Doc: "Model that describes images, for the tool web_scrape."},
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

// Defaults are what an org says for agents that say nothing.
type Defaults struct {
	Model           string // of agents that are created without one
	MaxSteps        int
	Timeout         time.Duration // 0 = the org's deadline
	CompactionModel string        // "" = that of the org, or the model of the agent
	VisionModel     string        // that describes images
}

// DefaultsOf returns the defaults that stored settings make. A value that this build refuses has the
// default of the gateway.
func DefaultsOf(settings []Setting) Defaults {
	d := Defaults{Model: FallbackDefaultModel, MaxSteps: DefaultMaxSteps, VisionModel: FallbackVisionModel}
	for _, s := range settings {
		k, ok := FindSetting(s.Key)
		if !ok || k.Check(s.Value) != nil {
			continue
		}
		n, _ := strconv.Atoi(s.Value) // checked for those that are numbers
		switch s.Key {
		case DefaultModelKey:
			d.Model = s.Value
		case MaxStepsKey:
			d.MaxSteps = n
		case TimeoutKey:
			d.Timeout = time.Duration(n) * time.Second
		case CompactionModelKey:
			d.CompactionModel = s.Value
		case VisionModelKey:
			d.VisionModel = s.Value
		}
	}
	return d
}
