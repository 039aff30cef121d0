package chat

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// The objects below are the ones of the OpenAI document, with its field names.

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
	surface.Extra
}

type choice struct {
	Index        int     `json:"index"`
	Message      message `json:"message"`
	Logprobs     any     `json:"logprobs"`
	FinishReason string  `json:"finish_reason"`
}

type message struct {
	Role             string       `json:"role"`
	Content          *string      `json:"content"`
	Refusal          *string      `json:"refusal"`
	ReasoningContent string       `json:"reasoning_content,omitempty"`
	ToolCalls        []toolCall   `json:"tool_calls,omitempty"`
	Annotations      []annotation `json:"annotations,omitempty"`
}

// annotation is a source of the content.
type annotation struct {
	Type string      `json:"type"`
	URL  urlCitation `json:"url_citation"`
}

// urlCitation has the first and the last character of the content that cites the URL.
type urlCitation struct {
	Start int64  `json:"start_index"`
	End   int64  `json:"end_index"`
	URL   string `json:"url"`
	Title string `json:"title"`
}

// newAnnotations returns the citations that the API has: those of URLs.
func newAnnotations(citations ...item.Citation) (out []annotation) {
	for _, c := range citations {
		if c.Kind == item.CitesURL {
			out = append(out, annotation{"url_citation", urlCitation{c.Start, c.End, c.URL, c.Title}})
		}
	}
	return out
}

type toolCall struct {
	Index    *int     `json:"index,omitempty"` // in chunks only
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	PromptTokens        int64             `json:"prompt_tokens"`
	CompletionTokens    int64             `json:"completion_tokens"`
	TotalTokens         int64             `json:"total_tokens"`
	PromptTokensDetails promptDetails     `json:"prompt_tokens_details"`
	CompletionDetails   completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

type completionDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

func newUsage(u model.Usage) *usage {
	total := u.Total
	if total == 0 {
		total = u.Input + u.Output
	}
	return &usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: total,
		PromptTokensDetails: promptDetails{u.CachedInput}, CompletionDetails: completionDetails{u.Reasoning},
	}
}

type chunk struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	Created       int64         `json:"created"`
	Model         string        `json:"model"`
	Choices       []chunkChoice `json:"choices"`
	Usage         *usage        `json:"usage,omitempty"`
	surface.Extra               // of the chunk with the finish reason
}

type chunkChoice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	Logprobs     any     `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Role             string  `json:"role,omitempty"`
	Content          *string `json:"content,omitempty"`
	Refusal          string  `json:"refusal,omitempty"`
	ReasoningContent string  `json:"reasoning_content,omitempty"`
	ToolCalls        any     `json:"tool_calls,omitempty"` // []toolCall or []callPiece, not empty

	// Annotations is not in the OpenAI document of chunks. OpenAI and others send it.
	Annotations []annotation `json:"annotations,omitempty"`
}

// callPiece is what follows the first piece of a call in a stream.
type callPiece struct {
	Index    int            `json:"index"`
	Function argumentsPiece `json:"function"`
}

type argumentsPiece struct {
	Arguments string `json:"arguments"`
}

func newToolCalls(calls []event.ClientCall, indexed bool) []toolCall {
	var out []toolCall
	for i, c := range calls {
		t := toolCall{ID: c.ID, Type: "function", Function: function{c.Name, c.Arguments}}
		if indexed {
			t.Index = &i
		}
		out = append(out, t)
	}
	return out
}

// completionID makes the answer's id from the run's.
func completionID(runID string) string { return "chatcmpl-" + runID }
