package responses

import (
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

// codeOutputOf returns the result of a call. The logs of the built-in tool are what the code has printed, its errors, the value of its
// last expression, and why its session has ended.
func codeOutputOf(ev event.ToolDone) codeOutput {
	v, ran, _ := surface.CodeResultOf(ev)
	if !ran || ev.Server != org.BuiltinTools {
		return codeOutput{logs: ev.Text}
	}
	var logs strings.Builder
	for _, text := range []string{v.Stdout, v.Stderr, v.Result, v.Error} {
		if text != "" && logs.Len() > 0 && !strings.HasSuffix(logs.String(), "\n") {
			logs.WriteByte('\n')
		}
		logs.WriteString(text)
	}
	return codeOutput{logs.String(), v.Exit >= 0}
}
