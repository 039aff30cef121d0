package route

import (
	deque "container/list"
	"crypto/sha256"
	"time"
)

// maxPins is how many conversations a Router remembers, and pinFor how long after their last
// answer: longer than providers keep a prompt cache. A stored conversation knows its target by
// itself; see [Ask.Last].
const (
	maxPins = 10_000
	pinFor  = time.Hour
)

// pins are the targets of conversations that have another one than their key leads to. The zero
// value is ready to be used.
type pins struct {
	of     map[[16]byte]*deque.Element // of *pin
	recent deque.List                  // the latest first
}

type pin struct {
	key    [16]byte
	target targetName
	at     time.Time
}

// pinKey returns the key of a conversation with a model. It has a fixed size, whatever the caller
// has sent.
func pinKey(model, key string) (out [16]byte) {
	sum := sha256.Sum256([]byte(model + "\x00" + key))
	copy(out[:], sum[:])
	return out
}

func (p *pins) get(key [16]byte, now time.Time) (targetName, bool) {
	e, ok := p.of[key]
	if !ok {
		return targetName{}, false
	}
	found := e.Value.(*pin)
	if now.Sub(found.at) > pinFor {
		p.remove(key)
		return targetName{}, false
	}
	return found.target, true
}

func (p *pins) put(key [16]byte, target targetName, now time.Time) {
	p.remove(key)
	if p.of == nil {
		p.of = map[[16]byte]*deque.Element{}
	}
	if p.recent.Len() >= maxPins {
		p.remove(p.recent.Back().Value.(*pin).key)
	}
	p.of[key] = p.recent.PushFront(&pin{key, target, now})
}

func (p *pins) remove(key [16]byte) {
	if e, ok := p.of[key]; ok {
		p.recent.Remove(e)
		delete(p.of, key)
	}
}
