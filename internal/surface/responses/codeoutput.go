package responses

import (
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// codeOutput is what a call that runs code has done.
type codeOutput struct {
	logs string
	ran  bool // the code ran to its end, also if that is an exception
}

// codeOutputOf reads the result of a call. That of the built-in tool is JSON, unless it was cut for the model or the call was
// not executed; its logs are what the code has printed, its errors, the value of its last expression, and why its session has ended.
func codeOutputOf(ev event.ToolDone) codeOutput {
	whole := codeOutput{logs: ev.Text}
	var a struct {
		Exit                          *int
		Stdout, Stderr, Result, Error string
	}
	if ev.Server != org.BuiltinTools || json.Unmarshal([]byte(strings.TrimPrefix(ev.Text, surface.ErrorMark)), &a) != nil || a.Exit == nil {
		return whole
	}
	var logs strings.Builder
	for _, text := range []string{a.Stdout, a.Stderr, a.Result, a.Error} {
		if text != "" && logs.Len() > 0 && !strings.HasSuffix(logs.String(), "\n") {
			logs.WriteByte('\n')
		}
		logs.WriteString(text)
	}
	return codeOutput{logs.String(), *a.Exit >= 0}
}
