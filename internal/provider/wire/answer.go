package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const byteOrderMark = "\xef\xbb\xbf"

// Sniff looks at the first byte that is not white space. Servers that ignore
// "stream", or fail before they stream, answer with one JSON value under any
// content type: whole is true then. An HTML page is an error.
func Sniff(src io.Reader) (whole bool, rest io.Reader, err error) {
	buf := make([]byte, 0, 512)
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		start := AfterSpace(bytes.TrimPrefix(buf, []byte(byteOrderMark)))
		if len(start) > 0 && start[0] != byteOrderMark[0] {
			if start[0] == '<' {
				return false, nil, page()
			}
			rest := io.MultiReader(bytes.NewReader(buf), src)
			if err != nil {
				rest = io.MultiReader(bytes.NewReader(buf), failing{err})
			}
			return start[0] == '{' || start[0] == '[', rest, nil
		}
		if err != nil {
			return false, nil, err
		}
		if len(buf) == cap(buf) {
			buf = buf[:0] // nothing but white space
		}
	}
}

// failing repeats an error that came together with the first bytes.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// ReadWhole reads an answer that is one JSON value, and returns it without white
// space around it. It is charged to memory, if there is one.
func ReadWhole(src io.Reader, memory tool.Memory) ([]byte, error) {
	data, err := ledger.ReadAll(src, -1, memory)
	if err != nil {
		return nil, unkept(err)
	}
	data = TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	if !Valid(data) {
		return nil, Garbage(data)
	}
	return data, nil
}

// Size counts the model's own words of one turn: it refuses more than [MaxTurn],
// and charges them to memory, if there is one. They are kept twice: in what the
// turn is put together in, and in the turn.
type Size struct {
	Memory  tool.Memory // nil = nothing is charged
	charged int         // bytes
}

// turnGrain is how many bytes of a turn are charged at a time.
const turnGrain = 16 << 10

// Check returns an error when a turn of so many bytes is more than a model
// writes, or more than may be kept.
func (s *Size) Check(size int) error {
	if size > MaxTurn {
		return Broken(fmt.Sprintf("sent a turn larger than %d MiB", MaxTurn>>20), nil)
	}
	if s.Memory == nil || 2*size <= s.charged {
		return nil
	}
	more := 2*size - s.charged + turnGrain
	if err := s.Memory.Charge(more); err != nil {
		return unkept(err)
	}
	s.charged += more
	return nil
}

// unkept is an answer for which there is no memory. One that is beyond the bound
// of a run is the provider's failure, as one beyond MaxAnswer is. Where the org or
// the process has no room, the run ends.
func unkept(err error) error {
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Bound == ledger.Run {
		return Broken("the answer is too large: it needs more memory than the run may retain", nil)
	}
	return &model.Error{Class: model.Target, Status: http.StatusOK, Message: "the answer needs more memory than the gateway may use", Err: err}
}
