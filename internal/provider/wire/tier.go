package wire

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// TierMember is the member of a client's request that [Tier] reads.
const TierMember = "service_tier"

// Tier returns the service tier that the client of a dialect of OpenAI asks for, if other
// providers have it too: model.TierFlex or model.TierPriority; "" = none of them.
func Tier(req *model.Request) string {
	switch tier := text(req, TierMember); tier {
	case model.TierFlex, model.TierPriority:
		return tier
	}
	return ""
}

// EndUser returns whom the request names as its end user: the option user, or else
// safety_identifier, which replaces it in the dialects of OpenAI; "" = nobody.
func EndUser(req *model.Request) string {
	if req.User != "" {
		return req.User
	}
	return text(req, "safety_identifier")
}

// text returns a member of the client's request that is a text; "" = none. Anthropic's own
// dialect has members with the same names and another meaning.
func text(req *model.Request, name string) string {
	if req.Dialect != model.DialectChat && req.Dialect != model.DialectResponses {
		return ""
	}
	i := slices.IndexFunc(req.Params, func(p model.Param) bool { return p.Name == name })
	if i < 0 {
		return ""
	}
	return jsonscan.Text(req.Params[i].Value)
}
