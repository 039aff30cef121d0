package turnpiketest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// verb is the first word of a story's line.
type verb string

const (
	sayText      verb = "text"
	sayReasoning verb = "reasoning"
	sayRefusal   verb = "refusal"
	makeCall     verb = "call"
	setStop      verb = "stop"
	setUsage     verb = "usage"
	pause        verb = "wait"
	fail         verb = "fail"
	cut          verb = "cut"
	hang         verb = "hang"
	again        verb = "again"
)

// step is one line of a turn.
type step struct {
	verb    verb
	text    string
	call    model.Call
	stop    model.Stop
	usage   model.Usage
	wait    time.Duration
	failure failure
}

// failure is a provider's error answer.
type failure struct {
	status     int
	retryAfter int // seconds; 0 = not said
	message    string
	kind       string // the type of the error, on Bedrock; "" = that of the status
}

// turn is the answer to one model call.
type turn struct {
	steps []step
	again int  // how many more calls it answers; forever = all
	begun bool // it has answered one
}

const forever = -1

// parseStory reads the turns of a story.
func parseStory(story string) ([]turn, error) {
	var turns []turn
	var current *turn
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
			turns = append(turns, turn{})
			current = &turns[len(turns)-1]
		}
		if err := current.add(line); err != nil {
			return nil, fmt.Errorf("story line %d: %w", number, err)
		}
	}
	return turns, nil
}

// add reads one line of the turn.
func (t *turn) add(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	s := step{verb: verb(word)}
	var err error
	switch s.verb {
	case sayText, sayReasoning, sayRefusal:
		s.text, err = words(rest)
	case makeCall:
		s.call, err = parseCall(rest)
	case setStop:
		s.stop, err = parseStop(rest)
	case setUsage:
		s.usage, err = parseUsage(rest)
	case pause:
		s.wait, err = time.ParseDuration(rest)
	case fail:
		s.failure, err = parseFailure(rest)
	case cut, hang:
		err = nothing(rest)
	case again:
		t.again, err = parseAgain(rest)
		return err
	default:
		err = fmt.Errorf("unknown word %q", word)
	}
	t.steps = append(t.steps, s)
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

func parseFailure(rest string) (failure, error) {
	word, rest, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(word)
	if err != nil || status < 400 || status > 599 {
		return failure{}, fmt.Errorf("fail %q: not the status of an error", word)
	}
	f := failure{status: status}
	if after, ok := strings.CutPrefix(rest, "retry-after "); ok {
		word, rest, _ = strings.Cut(after, " ")
		if f.retryAfter, err = strconv.Atoi(word); err != nil || f.retryAfter < 1 {
			return failure{}, fmt.Errorf("retry-after %q: not a number of seconds", word)
		}
	}
	f.message, err = words(rest)
	return f, err
}

func parseAgain(rest string) (int, error) {
	if rest == "" {
		return forever, nil
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
