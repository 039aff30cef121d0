package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// reply is one turn of the script.
type reply struct {
	id    string
	text  string
	call  *call // nil for an answer
	cut   bool  // the caller's token limit ended the text
	usage usage
}

// play decides what the model says. It depends on nothing but the request.
func play(r *request, body []byte) reply {
	sum := sha256.Sum256(body)
	p := reply{id: hex.EncodeToString(sum[:12])}
	said := conversationOf(r.Messages)
	if name, arguments, ok := pick(r, said); ok {
		p.call = &call{ID: "call_" + p.id, Type: "function"}
		p.call.Function.Name, p.call.Function.Arguments = name, arguments
		p.text = announce(name, len(said.results))
	} else {
		p.text = conclude(said, len(named(r.Tools)))
	}
	p.limit(r)
	p.usage = count(r, p)
	return p
}

// conversation is the part of the transcript that the script goes by.
type conversation struct {
	question string
	results  []result // since the question
}

type result struct{ tool, arguments, text string }

func conversationOf(messages []message) conversation {
	var c conversation
	calls := map[string]call{}
	for _, m := range messages {
		for _, k := range m.ToolCalls {
			calls[k.ID] = k
		}
		switch m.Role {
		case "user":
			c = conversation{question: strings.TrimSpace(string(m.Content))}
		case "tool":
			f := calls[m.ToolCallID].Function
			c.results = append(c.results, result{f.Name, f.Arguments, strings.TrimSpace(string(m.Content))})
		}
	}
	return c
}

// last is the text of the newest result.
func (c conversation) last() string {
	if len(c.results) == 0 {
		return ""
	}
	return c.results[len(c.results)-1].text
}

func (c conversation) called(tool string) bool {
	for _, r := range c.results {
		if r.tool == tool {
			return true
		}
	}
	return false
}

func announce(tool string, results int) string {
	if results == 0 {
		return fmt.Sprintf("Let me ask %s.", tool)
	}
	return fmt.Sprintf("Next, %s with what came back.", tool)
}

// conclude returns the text of an answer. tools is how many the model might have called.
func conclude(c conversation, tools int) string {
	if len(c.results) == 0 {
		text := fmt.Sprintf("I am Turnpike's scripted demo model: I follow a script, no AI is at work. You asked: %q", shorten(c.question))
		if tools > 0 {
			text += ". I call tools that only read, tools that the question names, and any tool for: use TOOL with {…}"
		}
		return text
	}
	said := make([]string, len(c.results))
	for i, r := range c.results {
		said[i] = fmt.Sprintf("%s said %q", r.tool, shorten(r.text))
	}
	return "Here is what the tools found: " + strings.Join(said, ", and ") + ". (From Turnpike's scripted demo model: no AI wrote this.)"
}

// shorten keeps what can be quoted in a sentence.
func shorten(s string) string {
	const most = 400
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// limit cuts the text at the caller's token limit, a word being a token. A
// call is never cut.
func (p *reply) limit(r *request) {
	most := r.MaxCompletionTokens
	if most == nil {
		most = r.MaxTokens
	}
	words := pieces(p.text)
	if most == nil || p.call != nil || *most >= len(words) {
		return
	}
	p.text, p.cut = strings.Join(words[:max(*most, 0)], ""), true
}

// usage counts tokens: words, which are near enough.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func count(r *request, p reply) usage {
	const perMessage = 3 // what frames a message costs about this
	var u usage
	for _, m := range r.Messages {
		u.Prompt += perMessage + words(string(m.Content))
		for _, c := range m.ToolCalls {
			u.Prompt += callTokens(c)
		}
	}
	for _, t := range r.Tools {
		u.Prompt += perMessage + words(t.Function.Description) + len(t.Function.Parameters)/5
	}
	u.Completion = words(p.text)
	if p.call != nil {
		u.Completion += callTokens(*p.call)
	}
	u.Total = u.Prompt + u.Completion
	return u
}

func words(s string) int { return len(strings.Fields(s)) }

func callTokens(c call) int { return 2 + len(c.Function.Arguments)/5 }
