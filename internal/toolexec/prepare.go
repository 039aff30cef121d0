// Package toolexec takes a tool call from what the model wrote to a result that
// the model can read. Every link of the two chains is one small function:
//
//	Prepare   owner → allow-list → parse → validate (lenient: change types, validate again) → verdict
//	Execute   call → failure as text → whole and visible characters → size cap
//
// Hooks, policy rules and the result cache have their places between these
// links; they come with the features that need them.
package toolexec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxArguments bounds the bytes of the arguments of one call, which are validated,
// hashed and stored.
const maxArguments = 1 << 20

// Rules are the settings for the tool calls of a run.
type Rules struct {
	ClientTools map[string]bool // names that the caller executes
	Only        []string        // the names that the caller allows; nil = all
	Validation  loop.Validation
	NoUnpriced  bool // a tool whose price nobody has said is not executed

	// Asks returns whose rule asks for approval of a call; "" = none. has reports whether the
	// server has a tool of a name. Nil = none asks.
	Asks func(server, tool string, readOnly bool, has func(name string) bool) loop.Asker

	// Remembers reports whether a call for which a rule asks needs no approval, because a person has approved
	// further calls of its tool, whose definition has the digest. Nil = none.
	Remembers func(call loop.Remembered) bool
}

// Prepared is the result of Prepare.
type Prepared struct {
	loop.CallPrepared
	Entry     *catalog.Entry  // nil unless the gateway owns it
	Arguments json.RawMessage // a JSON object, valid; nil unless it is to run
}

// Prepare decides who executes the call, and whether it is executed. It calls nothing
// outside this process: the same call always has the same result.
func Prepare(set *catalog.Set, rules Rules, key loop.CallKey, name, raw string) Prepared {
	p := Prepared{CallPrepared: loop.CallPrepared{Key: key, Tool: name, ArgsDigest: digest(raw)}}
	allowed := rules.Only == nil || slices.Contains(rules.Only, name)
	if rules.ClientTools[name] {
		if !allowed { // the client does not get a call that it has excluded
			p.Owner = tool.Unknown
			return p.tell(notAllowed(name))
		}
		p.Owner = tool.Client
		return p
	}
	p.Entry = set.Callable(name)
	if p.Entry == nil {
		p.Owner, p.Server = tool.Unknown, set.Withheld(name)
		return p.tell(unknownTool(set, name))
	}
	p.Owner = tool.Gateway
	p.Tool, p.Server = p.Entry.Tool.Definition().Name, p.Entry.Server
	p.ToolDigest, p.Class, p.Polling = p.Entry.Digest, p.Entry.Class, p.Entry.Polling
	if p.Entry.Price != nil {
		p.PriceNano = *p.Entry.Price
	}
	switch {
	case !allowed:
		return p.tell(notAllowed(name))
	case rules.NoUnpriced && p.Entry.Unpriced():
		return p.tell(refusal{Error: fmt.Sprintf("the tool %s is not available: a limit on money applies, and the tool has no price "+
			"(price_usd or tool_prices_usd of the server %s; the org sets unpriced_tools: refuse)", name, p.Server)})
	}
	arguments, canonical, err := parse(raw)
	if err != nil {
		return p.tell(refusal{Error: "invalid arguments for " + name + ": " + err.Error()})
	}
	p.ArgsDigest = digest(canonical)
	if rules.Validation != loop.NoValidation {
		v := p.Entry.Schema.Validate(arguments)
		if v != nil && rules.Validation == loop.Lenient {
			arguments, v = p.coerce(arguments, v)
		}
		if v != nil {
			return p.tell(refusal{Error: "invalid arguments for " + name, Violations: v})
		}
	}
	p.Arguments = arguments
	p.Verdict = loop.Run
	if rules.Asks != nil && !p.Entry.Own() {
		hint := p.Entry.Definition.Annotations.ReadOnly
		has := func(name string) bool { return set.Has(p.Server, name) }
		if p.Asker = rules.Asks(p.Server, p.Tool, hint != nil && *hint, has); p.Asker != "" {
			p.Verdict = loop.Ask
		}
	}
	if asker, ok := p.Entry.Tool.(tool.Asker); ok && p.Verdict == loop.Run && asker.Asks(arguments) {
		p.Verdict, p.Asker = loop.Ask, loop.AskedByServer
	}
	if p.Verdict == loop.Ask && rules.Remembers != nil && rules.Remembers(loop.Remembered{Server: p.Server, Tool: p.Tool, ToolDigest: p.ToolDigest, Place: p.Entry.Place.ID, Asker: p.Asker}) {
		p.Verdict, p.Asker = loop.Run, ""
	}
	return p
}

// Bind binds the approval of a call that waits for it to the server as it is now.
func (p *Prepared) Bind() {
	if p.Verdict == loop.Ask {
		p.Place, p.Host = p.Entry.Place.ID, p.Entry.Place.Host
	}
}

// coerce converts arguments to the types that the schema requires, and returns them with
// the violations that are left. The converted arguments are executed, digested and
// stored; the transcript keeps those of the model.
func (p *Prepared) coerce(arguments json.RawMessage, found []schema.Violation) (json.RawMessage, []schema.Violation) {
	coerced, changes := p.Entry.Schema.Coerce(arguments)
	if len(changes) == 0 {
		return arguments, found
	}
	canonical, ok := Canonical(coerced)
	if !ok {
		return arguments, found
	}
	found = p.Entry.Schema.Validate(coerced)
	if found == nil {
		p.ArgsDigest = digest(canonical)
		for _, c := range changes {
			p.Coerced = append(p.Coerced, loop.Coerced(c))
		}
	}
	return coerced, found
}

func (p Prepared) tell(r refusal) Prepared {
	p.Verdict = loop.Answer
	p.Answer = r.String()
	return p
}

// refusal is the text for the model if its call was not executed.
type refusal struct {
	Error      string             `json:"error"`
	Violations []schema.Violation `json:"violations,omitempty"`
}

// Refusal returns the text for the model of a call that is not executed, and why.
func Refusal(why string) string { return refusal{Error: why}.String() }

func (r refusal) String() string {
	const most = 20 // more would teach nothing new
	if n := len(r.Violations); n > most {
		r.Error += fmt.Sprintf(" (%d violations, the first %d follow)", n, most)
		r.Violations = r.Violations[:most]
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // strings only: cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

func notAllowed(name string) refusal {
	return refusal{Error: fmt.Sprintf("tool %q is not among the allowed tools of this request", name)}
}

func unknownTool(set *catalog.Set, name string) refusal {
	if server := set.Withheld(name); server != "" {
		return refusal{Error: fmt.Sprintf("tool %q of server %s is not allowed here", name, server)}
	}
	return refusal{Error: fmt.Sprintf("unknown tool %q%s%s", name, unavailable(set.Unavailable()), suggestion(set.Names()))}
}

// unavailable says which servers' tools are missing: the unknown tool may be one of them.
func unavailable(servers []string) string {
	if len(servers) == 0 {
		return ""
	}
	return "; it may be a tool of a server that is not available now: " + strings.Join(servers, ", ")
}

func suggestion(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "; there are no tools"
	case len(names) > most:
		return fmt.Sprintf("; some of the tools are: %s", strings.Join(names[:most], ", "))
	}
	return "; the tools are: " + strings.Join(names, ", ")
}

// parse returns the arguments as a JSON object and in the canonical form that
// names them: JCS (RFC 8785) with integers kept digit by digit. An empty string
// is no arguments.
func parse(raw string) (arguments json.RawMessage, canonical string, err error) {
	if strings.TrimSpace(raw) == "" {
		return json.RawMessage("{}"), "{}", nil
	}
	if len(raw) > maxArguments {
		return nil, "", fmt.Errorf("larger than %d bytes", maxArguments)
	}
	v := jsontext.Value(raw)
	if v.Kind() != '{' {
		return nil, "", fmt.Errorf("not a JSON object%s", syntax(v))
	}
	canon := slices.Clone(v)
	if err := canon.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, "", fmt.Errorf("not valid JSON: %s", plain(err))
	}
	if len(raw) > maxNesting && jsonscan.Depth(v) > maxNesting {
		return nil, "", fmt.Errorf("nested deeper than %d levels", maxNesting)
	}
	if bytes.Contains(canon, []byte(largestFloat)) && hasHugeNumber(v) {
		return nil, "", errors.New("a number has an exponent that is too large: the largest number is " + largestFloat)
	}
	return json.RawMessage(raw), string(canon), nil
}

// maxNesting is the most levels of arguments: they are stored in events, whose decoder has a
// limit of 10,000.
const maxNesting = 512

// largestFloat is what JCS makes of every number that is too large for a float64. They would
// all have the same canonical form.
const largestFloat = "1.7976931348623157e+308"

// hasHugeNumber reports whether valid JSON has a number that is too large for a float64 and
// is not written as an integer.
func hasHugeNumber(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return false // the end
		}
		if token.Kind() != '0' {
			continue
		}
		text := token.String()
		if _, err := strconv.ParseFloat(text, 64); err != nil && strings.ContainsAny(text, ".eE") {
			return true
		}
	}
}

// Canonical returns the canonical form of a call's arguments, which is equal for
// arguments with the same meaning. It returns false if they have none.
func Canonical(arguments json.RawMessage) (string, bool) {
	_, canonical, err := parse(string(arguments))
	return canonical, err == nil
}

// ArgumentsDigest returns what [loop.CallPrepared].ArgsDigest is for arguments that are
// executed; "" for a text that is no arguments.
func ArgumentsDigest(arguments json.RawMessage) string {
	canonical, ok := Canonical(arguments)
	if !ok {
		return ""
	}
	return digest(canonical)
}

func syntax(v jsontext.Value) string {
	if v.IsValid() {
		return ""
	}
	return " and not valid JSON"
}

// plain removes the package name from a syntax error.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
