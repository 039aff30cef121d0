// Package script reads the stories that scripted models and fake providers play: the format is that of package
// turnpiketest.
package script

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// Verb is the first word of a story's line.
type Verb string

// The verbs. Package turnpiketest says what their lines mean.
const (
	SayText      Verb = "text"
	SayReasoning Verb = "reasoning"
	SayRefusal   Verb = "refusal"
	MakeCall     Verb = "call"
	SetStop      Verb = "stop"
	SetUsage     Verb = "usage"
	Pause        Verb = "wait"
	Fail         Verb = "fail"
	Cut          Verb = "cut"
	Hang         Verb = "hang"
	again        Verb = "again"
)

// Step is one line of a turn.
type Step struct {
	Verb    Verb
	Text    string
	Call    model.Call
	Stop    model.Stop
	Usage   model.Usage
	Wait    time.Duration
	Failure Failure
}

// Failure is a provider's error answer.
type Failure struct {
	Status     int
	RetryAfter int // seconds; 0 = not said
	Message    string
	Kind       string // the type of the error, on Bedrock; "" = that of the status
}

// Turn is the answer to one model call.
type Turn struct {
	Steps []Step
	Again int  // how many more calls it answers; forever = all
	Begun bool // it has answered one
}

// Forever is the Again of a turn that answers all further calls.
const Forever = -1

// Parse reads the turns of a story. The error names the line that is wrong.
func Parse(story string) ([]Turn, error) {
	var turns []Turn
	var current *Turn
	number := 0
	for line := range strings.Lines(story) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.TrimSpace(line) == "":
			current = nil
			continue
		case strings.HasPrefix(line, "#"):
			continue
		case current == nil:
			turns = append(turns, Turn{})
			current = &turns[len(turns)-1]
		}
		if err := current.add(line); err != nil {
			return nil, fmt.Errorf("story line %d: %w", number, err)
		}
	}
	return turns, nil
}

// add reads one line of the turn.
func (t *Turn) add(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	s := Step{Verb: Verb(word)}
	var err error
	switch s.Verb {
	case SayText, SayReasoning, SayRefusal:
		s.Text, err = words(rest)
	case MakeCall:
		s.Call, err = parseCall(rest)
	case SetStop:
		s.Stop, err = parseStop(rest)
	case SetUsage:
		s.Usage, err = parseUsage(rest)
	case Pause:
		s.Wait, err = time.ParseDuration(rest)
	case Fail:
		s.Failure, err = parseFailure(rest)
	case Cut, Hang:
		err = nothing(rest)
	case again:
		t.Again, err = parseAgain(rest)
		return err
	default:
		err = fmt.Errorf("unknown word %q", word)
	}
	t.Steps = append(t.Steps, s)
	return err
}

// words returns the text of a line, unquoted where it is in double quotes.
func words(rest string) (string, error) {
	if !strings.HasPrefix(rest, `"`) {
		return rest, nil
	}
	text, err := strconv.Unquote(rest)
	if err != nil {
		return "", fmt.Errorf("text %s: the quotes do not close", rest)
	}
	return text, nil
}

func parseCall(rest string) (model.Call, error) {
	id, rest, _ := strings.Cut(rest, " ")
	name, arguments, _ := strings.Cut(rest, " ")
	if id == "" || name == "" {
		return model.Call{}, errors.New("call needs an id and a name")
	}
	if id == "-" {
		id = ""
	}
	return model.Call{ID: id, Name: name, Arguments: arguments}, nil
}

func parseStop(rest string) (model.Stop, error) {
	switch s := model.Stop(rest); s {
	case model.StopEnd, model.StopCalls, model.StopLength, model.StopFilter:
		return s, nil
	}
	return "", fmt.Errorf("unknown stop reason %q", rest)
}

func parseUsage(rest string) (model.Usage, error) {
	var u model.Usage
	if n, err := fmt.Sscanf(rest+"\n", "%d %d\n", &u.Input, &u.Output); n != 2 || err != nil {
		return u, fmt.Errorf("usage %q is not two numbers", rest)
	}
	u.Total = u.Input + u.Output
	return u, nil
}

func parseFailure(rest string) (Failure, error) {
	word, rest, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(word)
	if err != nil || status < 400 || status > 599 {
		return Failure{}, fmt.Errorf("fail %q: not the status of an error", word)
	}
	f := Failure{Status: status}
	if after, ok := strings.CutPrefix(rest, "retry-after "); ok {
		word, rest, _ = strings.Cut(after, " ")
		if f.RetryAfter, err = strconv.Atoi(word); err != nil || f.RetryAfter < 1 {
			return Failure{}, fmt.Errorf("retry-after %q: not a number of seconds", word)
		}
	}
	f.Message, err = words(rest)
	return f, err
}

func parseAgain(rest string) (int, error) {
	if rest == "" {
		return Forever, nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("again %q: not a number of calls", rest)
	}
	return n, nil
}

func nothing(rest string) error {
	if rest != "" {
		return fmt.Errorf("nothing belongs here: %q", rest)
	}
	return nil
}
