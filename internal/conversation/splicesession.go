package conversation

import (
	"reflect"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// roundSeparator is between the texts of the rounds of a run in a stream.
const roundSeparator = "\n\n"

// spliced is what a request continues of a session.
type spliced struct {
	kept  []item.Item // the first stored items, with the messages as the request has them
	fresh []item.Item // of the request, after kept
}

// spliceSession compares the messages of a request with a stored session. Clients resend what they saw: they
// have neither the calls of the gateway's tools nor their results. The items that are kept are those up to the
// last message that both have, in order, with the calls and results in between. After the first difference the
// request counts, and its last message always does.
func spliceSession(stored, asked []item.Item, callIDs map[string]string) spliced {
	s := &splicer{turns: slices.Collect(item.Turns(stored)), asked: slices.Collect(item.Turns(asked)), callIDs: callIDs}
	s.match()
	return spliced{slices.Concat(s.kept...), append(slices.Clip(s.answers), slices.Concat(s.asked...)...)}
}

// splicer compares two lists of turns, of which each item that no model wrote is one.
type splicer struct {
	turns   [][]item.Item // of the session that are left
	asked   [][]item.Item // of the request that are left
	kept    [][]item.Item
	answers []item.Item // results of the request for calls of the last turn in kept

	callIDs map[string]string // ids of the provider's, by ours
}

// match moves what both lists have to kept. The last turn of the request is not compared: it is what the
// request is about.
func (s *splicer) match() {
	for len(s.asked) > 1 && len(s.answers) == 0 {
		turn := s.asked[0]
		switch {
		case turn[0].Turn == 0 && turn[0].Kind == item.Message:
			if !s.message(turn) {
				return
			}
		case turn[0].Turn != 0:
			if !s.turn(turn) {
				return
			}
		default:
			return
		}
	}
}

// take moves the stored turns before n to kept.
func (s *splicer) take(n int) {
	s.kept = append(s.kept, s.turns[:n]...)
	s.turns = s.turns[n:]
}

// message takes a message that a client wrote. It is kept as the request has it.
func (s *splicer) message(turn []item.Item) bool {
	for i, t := range s.turns {
		switch {
		case byClient(t[0]):
			if !sameMessage(t[0], turn[0]) {
				return false
			}
			s.take(i + 1)
			s.kept[len(s.kept)-1] = turn
			s.asked = s.asked[1:]
			return true
		case t[0].Turn != 0 && !calls(t): // an answer that the client does not have any more
			return false
		}
	}
	return false
}

// turn takes an answer of a model, with the calls of the client's tools in it and their results.
func (s *splicer) turn(turn []item.Item) bool {
	var texts []string
	said := textOf(turn)
	for i, t := range s.turns {
		switch {
		case byClient(t[0]):
			return false
		case t[0].Turn == 0:
			continue
		}
		text, called := textOf(t), calls(t)
		same := said == text || said == joined(texts, text)
		switch {
		case calls(turn) && s.hasCalls(t, turn):
			if !same {
				return false
			}
			s.take(i + 1)
			s.asked = s.asked[1:]
			s.results()
			return true
		case !called && (calls(turn) || !same):
			return false
		case !called:
			s.take(i + 1)
			s.asked = s.asked[1:]
			return true
		}
		texts = append(texts, text)
	}
	return false
}

// results takes the results that follow a turn. Those that the session does not have, or has differently, are
// answers of the request: nothing stored follows them.
func (s *splicer) results() {
	n := 0
	for n < len(s.turns) && s.turns[n][0].Kind == item.ToolResult {
		n++
	}
	block := slices.Concat(s.turns[:n]...)
	s.turns = s.turns[n:]
	var equal []int    // of the block that the request has, too
	same := len(block) // how many of the block are kept: those behind the first that the request has differently are asked again
	for len(s.asked) > 0 && s.asked[0][0].Kind == item.ToolResult {
		it := s.asked[0][0]
		last := len(s.asked) == 1
		s.asked = s.asked[1:]
		i := slices.IndexFunc(block, func(r item.Item) bool { return r.CallID == s.stored(it.CallID) })
		for i >= 0 && slices.Contains(equal, i) { // several calls have the id
			next := slices.IndexFunc(block[i+1:], func(r item.Item) bool { return r.CallID == s.stored(it.CallID) })
			if next < 0 {
				i = -1
				break
			}
			i += 1 + next
		}
		switch {
		case i >= 0 && !last && sameParts(block[i].Parts, it.Parts):
			equal = append(equal, i)
			continue
		case i >= 0:
			block, same = slices.Delete(block, i, i+1), min(same, i)
			for k := range equal {
				if equal[k] > i {
					equal[k]--
				}
			}
		}
		s.answers = append(s.answers, it)
	}
	for i := range block[:min(same, len(block))] {
		s.kept = append(s.kept, block[i:i+1])
	}
	s.answers = append(slices.Clone(block[min(same, len(block)):]), s.answers...)
}

// hasCalls reports whether a stored turn has all calls of a turn of the request.
func (s *splicer) hasCalls(stored, turn []item.Item) bool {
	for _, c := range turn {
		if c.Kind != item.ToolCall {
			continue
		}
		want := sameAs(s.stored(c.CallID), c)
		if !slices.ContainsFunc(stored, func(t item.Item) bool { return t.Kind == item.ToolCall && sameAs(t.CallID, t) == want }) {
			return false
		}
	}
	return true
}

// stored returns the id under which a call is stored.
func (s *splicer) stored(id string) string {
	if theirs, ok := s.callIDs[id]; ok {
		return theirs
	}
	return id
}

// byClient reports whether an item is a message that a client wrote. The gateway's own, of a hook, are in no dialect.
func byClient(it item.Item) bool {
	return it.Kind == item.Message && it.Turn == 0 && it.Native.Dialect != ""
}

// calls reports whether a turn has tool calls.
func calls(turn []item.Item) bool {
	return slices.ContainsFunc(turn, func(it item.Item) bool { return it.Kind == item.ToolCall })
}

// textOf returns what the messages of a turn say.
func textOf(turn []item.Item) string {
	var b strings.Builder
	for _, it := range turn {
		if it.Kind == item.Message {
			b.WriteString(item.PlainText(it.Parts))
		}
	}
	return b.String()
}

// joined returns the texts of several rounds as a stream has them.
func joined(texts []string, last string) string {
	said := slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" })
	if len(said) == 0 {
		return last
	}
	return strings.Join(append(said, last), roundSeparator)
}

// sameMessage reports whether two messages of clients say the same.
func sameMessage(a, b item.Item) bool {
	return a.Role == b.Role && a.Name == b.Name && sameParts(a.Parts, b.Parts)
}

// sameParts compares parts without their markers for a prompt cache.
func sameParts(a, b []item.Part) bool {
	return slices.EqualFunc(a, b, func(x, y item.Part) bool {
		x.Cache, y.Cache = nil, nil
		return reflect.DeepEqual(x, y)
	})
}
