package chat

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The data of an event about a call, by its tool_type. Calls that begin have what the model asked for; calls that are
// complete have that as well.

// customData is for all tools but those below.
type customData struct {
	Type      string  `json:"tool_type"` // custom
	Arguments string  `json:"arguments"`
	Content   *string `json:"content,omitempty"` // the result that the model gets
	Outcome   string  `json:"outcome,omitempty"`
}

// codeData is for the built-in tool that runs code.
type codeData struct {
	Type     string `json:"tool_type"` // code_execution
	Language string `json:"language"`
	Code     string `json:"code"`
	*codeOutput
}

// codeOutput is what code that has run has done. The built-in tool makes no videos.
type codeOutput struct {
	Stdout      string   `json:"stdout"`
	Stderr      string   `json:"stderr"`
	Exception   *string  `json:"exception"` // null = none
	Images      []string `json:"images_base64"`
	VideoFrames []string `json:"video_frames_base64"`
	VideoCount  int      `json:"video_frame_count"`
	Directory   *string  `json:"working_directory"`
	TimeMS      int64    `json:"execution_time_ms"`
	Outcome     string   `json:"outcome"`
	FileIDs     []string `json:"file_ids,omitempty"` // of the files that it has made
}

// shellData is for the built-in tool that runs commands. The members of a call that is complete are those of all its commands together.
type shellData struct {
	Type     string   `json:"tool_type"` // shell
	Commands []string `json:"commands"`
	*shellOutput
}

type shellOutput struct {
	Stdout    string   `json:"stdout"`
	Stderr    string   `json:"stderr"`
	ExitCode  *int     `json:"exit_code"` // of the last command that has ended; null = none has
	Status    string   `json:"status"`    // completed or failed
	Directory *string  `json:"working_directory"`
	TimedOut  bool     `json:"timed_out"`
	TimeMS    int64    `json:"execution_time_ms"`
	Outcome   string   `json:"outcome"`
	FileIDs   []string `json:"file_ids,omitempty"` // of the files that it has made
}

// searchData is for the built-in tool that searches the web.
type searchData struct {
	Type    string  `json:"tool_type"` // web_search
	Query   string  `json:"query"`
	Results *int    `json:"results_count,omitempty"`
	Content *string `json:"content,omitempty"` // the error of a call that has failed
	Outcome string  `json:"outcome,omitempty"`
}

// calling returns the data of a call that begins.
func calling(ev event.ToolStarted) any { return dataOf(ev.Server, ev.Name, string(ev.Arguments)) }

// dataOf returns what a call asks for.
func dataOf(server, name, arguments string) any {
	language, isCode := builtin.RunsCode(name)
	switch {
	case server != org.BuiltinTools:
	case isCode:
		var a struct{ Language, Code string }
		if json.Unmarshal([]byte(arguments), &a) == nil {
			return codeData{Type: builtin.LabelCode, Language: cmp.Or(language, a.Language), Code: a.Code}
		}
	case name == builtin.Shell:
		var a struct{ Commands []string }
		if json.Unmarshal([]byte(arguments), &a) == nil {
			return shellData{Type: builtin.LabelShell, Commands: a.Commands}
		}
	case name == builtin.WebSearch:
		var a struct{ Query string }
		if json.Unmarshal([]byte(arguments), &a) == nil {
			return searchData{Type: builtin.LabelSearch, Query: a.Query}
		}
	}
	return customData{Type: "custom", Arguments: arguments}
}

// complete returns the data of a call that has ended.
func complete(ev event.ToolDone, arguments string) any {
	outcome := string(ev.Outcome)
	switch d := dataOf(ev.Server, ev.Name, arguments).(type) {
	case codeData:
		d.codeOutput = outputOf(ev)
		return d
	case shellData:
		d.shellOutput = commandsOf(ev)
		return d
	case searchData:
		d.Results, d.Outcome = new(len(surface.SearchResultOf(ev).Results)), outcome
		if ev.Outcome != event.CallOK && ev.Outcome != event.CallCached {
			d.Content = &ev.Text
		}
		return d
	case customData:
		d.Content, d.Outcome = &ev.Text, outcome
		return d
	}
	panic("no data of a call")
}

// outputOf returns the result of the built-in tool that runs code. A result of another form is shown as the output.
func outputOf(ev event.ToolDone) *codeOutput {
	out := &codeOutput{
		Images: []string{}, VideoFrames: []string{}, TimeMS: ev.Duration.Milliseconds(), Outcome: string(ev.Outcome), FileIDs: surface.FileIDs(ev),
	}
	switch v, _, ok := surface.CodeResultOf(ev); {
	case ok:
		out.Stdout, out.Stderr, out.Directory = v.Stdout, v.Stderr, shownDirectory(v.Directory())
		out.Images = append(out.Images, v.Images...)
		if v.Error == "" && v.Exit != 0 {
			v.Error = lastLine(v.Stderr)
		}
		if v.Error != "" || v.Exit != 0 {
			out.Exception = &v.Error
		}
	case ev.Outcome == event.CallOK || ev.Outcome == event.CallCached:
		out.Stdout = ev.Text
	default:
		out.Exception = &ev.Text
	}
	return out
}

// commandsOf returns the result of the built-in tool that runs commands. A result of another form is shown as errors.
func commandsOf(ev event.ToolDone) *shellOutput {
	out := &shellOutput{Status: "failed", TimeMS: ev.Duration.Milliseconds(), Outcome: string(ev.Outcome), FileIDs: surface.FileIDs(ev)}
	shell := surface.ShellResultOf(ev)
	ran := shell.Output
	if len(ran) == 0 {
		out.Stderr = ev.Text
		return out
	}
	out.Status, out.Directory = "completed", shownDirectory(shell.Directory())
	for _, one := range ran {
		out.Stdout += one.Stdout
		out.Stderr += one.Stderr
		out.TimedOut = out.TimedOut || one.Outcome.Type == "timeout"
		if one.Outcome.Exit != nil {
			out.ExitCode = one.Outcome.Exit
		}
	}
	return out
}

// shownDirectory returns null for a directory that is not shown.
func shownDirectory(directory string) *string {
	if directory == "" {
		return nil
	}
	return &directory
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// keepArguments keeps the arguments of a call until it is complete. The error is that of the account.
func (e *encoder) keepArguments(ev event.ToolStarted) error {
	if _, again := e.began[ev.Key]; again { // by the run's next owner
		return nil
	}
	if err := e.Charge(len(ev.Arguments)); err != nil {
		return err
	}
	if e.began == nil {
		e.began = map[string]string{}
	}
	e.began[ev.Key] = string(ev.Arguments)
	return nil
}

// argumentsOf returns the arguments of a call that is complete, and forgets them.
func (e *encoder) argumentsOf(ev event.ToolDone) string {
	arguments, began := e.began[ev.Key]
	if !began {
		return ev.Arguments
	}
	e.Release(len(arguments))
	delete(e.began, ev.Key)
	return arguments
}
