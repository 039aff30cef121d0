package conformance

import (
	"encoding/json"
	"fmt"
	"testing"
)

// nodeClient is the npm package openai, driven by a script in clients/.
type nodeClient struct {
	node   string // path of the node program
	script string // file in clients/
}

func (c nodeClient) name() string { return "Node" }

func (c nodeClient) start(t *testing.T, ask ask) *exchange {
	t.Helper()
	e := newExchange()
	onLine := func(line []byte) {
		var said struct {
			FirstText *string  `json:"first_text"`
			Paused    bool     `json:"paused"`
			Done      *outcome `json:"done"`
		}
		if err := json.Unmarshal(line, &said); err != nil {
			said.Done = &outcome{Error: &clientError{Class: "unreadable line", Message: fmt.Sprintf("%v: %s", err, line)}}
		}
		if said.FirstText != nil {
			offer(e.firstText, *said.FirstText)
		}
		if said.Paused {
			offer(e.paused, struct{}{})
		}
		if said.Done != nil {
			offer(e.done, *said.Done)
		}
	}
	p := startProcess(t, onLine, baseEnv(), c.node, "clients/"+c.script)
	say := func(line []byte) {
		if _, err := p.stdin.Write(append(line, '\n')); err != nil {
			offer(e.done, outcome{Error: &clientError{Class: "script ended early", Message: err.Error()}})
		}
	}
	say(marshal(ask))
	e.abort = func() { say([]byte("abort")) }
	e.goOn = func() { say([]byte("go on")) }
	return e
}

// offer sends value unless the buffered channel is full.
func offer[T any](channel chan<- T, value T) {
	select {
	case channel <- value:
	default:
	}
}
