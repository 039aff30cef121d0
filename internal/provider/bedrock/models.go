package bedrock

import (
	"regexp"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
)

// vendor is who made a model. What only some models take depends on it.
type vendor int

const (
	unknownVendor vendor = iota // also of an application inference profile, whose ARN names no model
	anthropicModel
	novaModel
	otherAmazon // Titan
	openaiModel // gpt-oss
	otherVendor
)

// traits are what a model takes of what Converse does not hide.
// https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html
type traits struct {
	vendor vendor
	claude claude.Rules // of an anthropicModel

	noTools   bool // every request with tools is refused
	status    bool // a tool result can be marked as an error
	caches    bool // takes cache points
	cacheTTL  bool // takes a lifetime of cache points
	schema    bool // takes a JSON schema for the answer
	reasoning bool // Nova that reasons
	shortIDs  bool // ids of calls have nine letters and digits
}

// versionSuffix is the end of a model id, such as -v1:0.
var versionSuffix = regexp.MustCompile(`-v\d+(:\d+k?)*$`)

// toolless are models that take no tools, by a part of their id.
var toolless = regexp.MustCompile(`titan-|anthropic\.claude-(v2|instant)|command-(text|light)|llama2|llama3-(8b|70b)|mistral-7b|mixtral-8x7b|jamba-instruct|\.j2-|deepseek\.r1`)

// TakesTools implements model.ToolTaker.
func (*Provider) TakesTools(name string) bool { return !traitsOf(name).noTools }

// traitsOf returns the traits of a model id, of an inference profile or of an ARN that
// ends with one.
func traitsOf(id string) traits {
	id = versionSuffix.ReplaceAllString(id, "")
	t := traits{noTools: toolless.MatchString(id)}
	switch {
	case strings.Contains(id, "anthropic.claude"):
		t.vendor, t.claude, t.status, t.caches = anthropicModel, claude.RulesOf(id), true, true
		t.schema, t.cacheTTL = !t.claude.NoSchema, !t.claude.NoSchema // both from Claude 4.5 on
	case strings.Contains(id, "amazon.nova"):
		t.vendor, t.status, t.caches, t.reasoning = novaModel, true, true, strings.Contains(id, "nova-2")
	case strings.Contains(id, "amazon."):
		t.vendor = otherAmazon
	case strings.Contains(id, "openai."):
		t.vendor, t.schema = openaiModel, true
	case strings.Contains(id, "meta."), strings.Contains(id, "cohere."), strings.Contains(id, "ai21."), strings.Contains(id, "writer."):
		t.vendor = otherVendor
	case strings.Contains(id, "mistral."), strings.Contains(id, "qwen."), strings.Contains(id, "deepseek."):
		t.vendor, t.schema, t.shortIDs = otherVendor, true, strings.Contains(id, "mistral.")
	}
	return t
}
