package chat

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// finishReasons has the "finish_reason" of the dialect for each reason.
var finishReasons = map[event.Reason]string{
	"":                "stop",
	event.Complete:    "stop",
	event.ClientCalls: "tool_calls",
	event.Refused:     "content_filter",
	event.OutputCut:   "length",
	event.MaxRounds:   "length",
	event.MaxCalls:    "length",
	event.Deadline:    "length",
	event.Tokens:      "length",
	event.Money:       "length",
	event.NoProgress:  "length",
}

// Errors returns the error format of the dialect.
func Errors() *surface.Errors { return surface.OpenAIErrors(model.DialectChat) }
