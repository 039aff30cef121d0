package builtin

import (
	"bytes"
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The values of results: see tool.Result.Value. Their JSON is what the model reads, unless that is cut.

// CodeResult is the value of a call that has run code. What the model must read comes before the output, which can be long.
type CodeResult struct {
	Language  string `json:"language"`
	Driver    string `json:"driver"`          // the sandbox that ran the code
	Exit      int    `json:"exit"`            // 0 = no error, -1 = the session has ended
	Error     string `json:"error,omitempty"` // why the session has ended
	Note      string `json:"note,omitempty"`
	StateLost bool   `json:"state_lost,omitempty"`

	Files       []event.File  `json:"files,omitempty"`
	NotProduced []NotProduced `json:"not_produced,omitempty"`

	Truncated bool   `json:"truncated,omitempty"` // a part of the output was dropped
	Result    string `json:"result,omitempty"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`

	Images []string `json:"images_base64,omitempty"` // that the code has shown; the JSON for the model does not have them
}

// Directory returns the working directory as the code sees it; "" = it is one of the host, or of a service, and is not shown.
func (r CodeResult) Directory() string { return directoryOf(r.Driver) }

// Directory is as [CodeResult.Directory].
func (r ShellResult) Directory() string { return directoryOf(r.Driver) }

func directoryOf(driver string) string {
	switch driver {
	case "wasm", "bwrap", "quickjs":
		return "/work"
	}
	return ""
}

// NotProduced is a file that the caller named and does not get.
type NotProduced struct {
	Path string `json:"path"`
	Why  string `json:"error"`
}

// ShellResult is the value of a call that has run commands.
type ShellResult struct {
	Output      []ShellOutput `json:"output"` // of each command that has run
	Driver      string        `json:"driver"`
	Note        string        `json:"note,omitempty"`
	Files       []event.File  `json:"files,omitempty"`
	NotProduced []NotProduced `json:"not_produced,omitempty"`
}

// ShellOutput is what became of a command, in the form of a shell_call_output of OpenAI.
type ShellOutput struct {
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Outcome ShellOutcome `json:"outcome"`
}

// ShellOutcome is how a command ended.
type ShellOutcome struct {
	Type string `json:"type"`                // exit or timeout
	Exit *int   `json:"exit_code,omitempty"` // nil = timeout
}

// SearchResult is the value of a call that has searched the web.
type SearchResult struct {
	Provider  string `json:"provider"`
	Query     string `json:"query"`
	Results   []Hit  `json:"results"`
	Truncated bool   `json:"truncated,omitempty"` // the text of a result is cut
}

// Hit is a result of a search.
type Hit struct {
	Title     string `json:"title,omitempty"`
	URL       string `json:"url"`
	Published string `json:"published_date,omitempty"`
	Author    string `json:"author,omitempty"`
	Text      string `json:"text,omitempty"`
}

// Refusal is the value of a call that was refused.
type Refusal struct {
	Error   string `json:"error"`
	Setting string `json:"setting,omitempty"` // that mends it
}

// Result returns the refusal as a result, which the model reads as JSON.
func (r Refusal) Result() tool.Result {
	e, _ := Encode(r) // strings: cannot fail
	out := tool.Error(string(e.JSON))
	out.Value = r
	return out
}

// Made is the value of a result that a hook has replaced: the files that the call has made stay.
type Made struct {
	Files []event.File `json:"files,omitempty"`
}

// FilesOf returns the files that the call with the value has made. Values of other types name none, so that only tools of the gateway
// can name files of a key.
func FilesOf(value any) []event.File {
	switch v := value.(type) {
	case CodeResult:
		return v.Files
	case ShellResult:
		return v.Files
	case Made:
		return v.Files
	}
	return nil
}

// Encoded is the JSON form of a value, as runs store it.
type Encoded struct {
	Type string          `json:"type,omitempty"`  // a name of decoders; "" = it is not a type of this package
	JSON json.RawMessage `json:"value,omitempty"` // nil = the same as the structured content of the result
}

// TypeMade is the Type of a [Made].
const TypeMade = "made"

// decoders return values of their type, by the name with which it is stored.
func decoders() map[string]func(json.RawMessage) (any, error) {
	return map[string]func(json.RawMessage) (any, error){
		"code": decode[CodeResult], "shell": decode[ShellResult], "search": decode[SearchResult], "refusal": decode[Refusal],
		TypeMade: decode[Made],
	}
}

func decode[T any](raw json.RawMessage) (any, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

func typeOf(value any) string {
	switch value.(type) {
	case CodeResult:
		return "code"
	case ShellResult:
		return "shell"
	case SearchResult:
		return "search"
	case Refusal:
		return "refusal"
	case Made:
		return TypeMade
	}
	return ""
}

// Encode returns the JSON form of a value. It does not escape HTML.
func Encode(value any) (Encoded, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return Encoded{typeOf(value), bytes.TrimSpace(b.Bytes())}, err
}

// Value returns the value. One that is not of a type of this package is a [json.RawMessage].
func (e Encoded) Value() (any, error) {
	if decode := decoders()[e.Type]; decode != nil {
		return decode(e.JSON)
	}
	return e.JSON, nil
}

// Size returns about how many bytes of memory the value retains beside its files.
func (r CodeResult) Size() int {
	return len(r.Result) + len(r.Stdout) + len(r.Stderr) + len(r.Error) + len(r.Note)
}

// Size is that of a [CodeResult].
func (r ShellResult) Size() int {
	n := len(r.Note)
	for _, o := range r.Output {
		n += len(o.Stdout) + len(o.Stderr)
	}
	return n
}

// Size is that of a [CodeResult].
func (r SearchResult) Size() int {
	n := len(r.Query)
	for _, h := range r.Results {
		n += len(h.Title) + len(h.URL) + len(h.Author) + len(h.Text)
	}
	return n
}

// Size is that of a [CodeResult].
func (r Refusal) Size() int { return len(r.Error) }
