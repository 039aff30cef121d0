package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// MaxBody is the most bytes of a model request: enough for long conversations with
// images. The HTTP server enforces it.
const MaxBody = 10 << 20

const (
	// memberBytes is about how much memory a member takes in a list, with its name.
	memberBytes = 64
	// objectBytes is about how much memory an object of a body takes when it is decoded,
	// for example an item with its parts.
	objectBytes = 512
)

// Member is one member of the top-level object of a body. Value is the text as it is in
// the body, without a copy.
type Member struct {
	Name  string
	Value json.RawMessage
	At    int // the position of the value in the body, in bytes
}

// SaysNothing reports whether a member with its value means the same as none.
func SaysNothing(m Member) bool {
	switch {
	case jsonscan.IsKind(m.Value, '{'):
		return m.Name == "logit_bias" && IsNothing(m.Value) // {} in other members can ask for something
	case m.Name == "service_tier" && (string(m.Value) == `"auto"` || string(m.Value) == `"default"`):
		return true
	}
	return IsNothing(m.Value)
}

// readBody reads the whole body into a buffer that grows with what arrives. The
// server charges the capacity of the buffer to the caller's account. Only a relay returns it:
// what is decoded of a body refers to it.
func readBody(r *http.Request) ([]byte, error) {
	body, err := memlimit.ReadLent(r.Body, min(r.ContentLength, MaxBody), nil)
	if bytes.HasPrefix(body, []byte(mark)) {
		body = body[:copy(body, body[len(mark):])] // the buffer is returned whole
	}
	return body, err
}

// mark is a byte order mark in UTF-8. Some clients write it before JSON, where it means nothing.
const mark = "\ufeff"

// skipMark returns a reader of r without a mark at its beginning.
func skipMark(r io.Reader) (io.Reader, error) {
	var first [len(mark)]byte
	n, err := io.ReadFull(r, first[:])
	switch {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return nil, err
	case string(first[:]) == mark:
		return r, nil
	}
	return io.MultiReader(bytes.NewReader(first[:n]), r), nil
}

// Scan reads a body once: it checks that it is one JSON object and returns the
// top-level members in order, repeated names included. Only the names are decoded, so
// that bytes can be passed on unchanged. The error says where the JSON is broken, or is
// that of the account, which is charged with the list of members before it grows.
func Scan(account *memlimit.Account, body []byte) ([]Member, error) {
	members := make([]Member, 0, 12)
	err := jsonscan.Object(body, func(name string, value []byte, at int) error {
		if len(members) == cap(members) {
			if err := account.Acquire(2 * memberBytes * cap(members)); err != nil {
				return err
			}
		}
		members = append(members, Member{name, value, at})
		return nil
	})
	if broken := (*jsonscan.SyntaxError)(nil); errors.As(err, &broken) {
		line := 1 + bytes.Count(body[:broken.Offset], []byte{'\n'})
		column := broken.Offset - bytes.LastIndexByte(body[:broken.Offset], '\n')
		return nil, fault.New(fault.Invalid, "invalid_json", "the request body is not valid JSON: %v (line %d, column %d)", broken, line, column)
	}
	if err != nil {
		return nil, err
	}
	return members, nil
}

// brokenJSON returns the error for the client of a body that is not held.
func brokenJSON(err error) error {
	if broken := (*jsonscan.SyntaxError)(nil); errors.As(err, &broken) {
		return fault.New(fault.Invalid, "invalid_json", "the request body is not valid JSON: %v", broken)
	}
	return err
}

// readMembers reads a body that is a JSON object, for an endpoint that calls no model. The account is charged with
// what is decoded of it. With optional, an empty body has no members.
func readMembers(r *http.Request, account *memlimit.Account, optional bool) ([]byte, []Member, error) {
	body, err := readBody(r)
	if err != nil || optional && len(bytes.TrimSpace(body)) == 0 {
		return nil, nil, err
	}
	members, err := Scan(account, body)
	if err == nil {
		err = CheckJSON(body)
	}
	if err == nil {
		err = ChargeDecoded(account, members)
	}
	return body, members, err
}

// ReadBody reads a body that is a JSON object, for an endpoint that calls no model, with its members. The account
// is charged with what is decoded of it.
func ReadBody(r *http.Request, account *memlimit.Account) ([]byte, []Member, error) {
	return readMembers(r, account, false)
}

// ReadObject is [ReadBody] for a body that may be empty. It returns the members by their names.
func ReadObject(r *http.Request, account *memlimit.Account) (map[string]json.RawMessage, error) {
	f, err := ReadOptionalFields(r, account)
	return f.values, err
}

// Elements yields the elements of an array of a body that [Scan] has read, with their positions
// from 0 on; nothing for any other value.
func Elements(array json.RawMessage) iter.Seq2[int, []byte] { return jsonscan.Elements(array) }

// Members yields the names and values of an object of a body that [Scan] has read, in order;
// nothing for any other value.
func Members(object json.RawMessage) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for name, v := range jsonscan.Members(jsonscan.TrimSpace(object)) {
			if !yield(string(name), v) {
				return
			}
		}
	}
}

// IsNothing reports whether a value is null, or a text, an array or an object without content.
func IsNothing(v []byte) bool {
	switch {
	case jsonscan.IsKind(v, '{'), jsonscan.IsKind(v, '['):
		return len(jsonscan.AfterSpace(v[1:])) == 1
	}
	return jsonscan.IsNull(v) || jsonscan.IsKind(v, '"') && !jsonscan.HasText(v)
}

// Texts returns the texts of members of an object, which is valid JSON, in the order of the
// names. A member that is missing or not a string has "". As in [json.Unmarshal], the last member
// of a name counts, and upper and lower case are the same in names.
func Texts(object []byte, names ...string) []string {
	out := make([]string, len(names))
	for name, value := range jsonscan.Members(jsonscan.TrimSpace(object)) {
		for i, wanted := range names {
			if bytes.EqualFold(name, []byte(wanted)) {
				out[i] = jsonscan.Text(value)
			}
		}
	}
	return out
}

// CheckNames refuses an object with a member that differs from one of names only by case: the
// gateway and a provider could read different things in it. object is valid JSON; a value of
// another kind has no members. at is where the object is in the body, "" for the body itself.
func CheckNames(at string, object []byte, names []string) error {
	for name := range jsonscan.Members(jsonscan.TrimSpace(object)) {
		if err := checkName(at, name, names); err != nil {
			return err
		}
	}
	return nil
}

// CheckElements does what [CheckNames] does for each object in an array of a body that [Scan] has read, and calls
// member with each member that has passed. i is the position of its object. of is where the array is in the body.
// An error of member is returned. Everything is read once.
func CheckElements(of string, array json.RawMessage, names []string, member func(i int, name, value []byte) error) error {
	return jsonscan.MembersOfElements(array, func(i int, name, value []byte) error {
		if jsonscan.Respelled(name, names) != "" { // the place is only formatted for an error
			return checkName(of+"["+strconv.Itoa(i)+"]", name, names)
		}
		return member(i, name, value)
	})
}

func checkName[S ~string | ~[]byte](at string, name S, names []string) error {
	known := jsonscan.Respelled(name, names)
	if known == "" {
		return nil
	}
	place := string(name)
	if at != "" {
		place = at + "." + place
	}
	return Unknown("member", place, string(name), known)
}

// CheckJSON refuses a body that would take many times its size in memory, or too much
// time, when it is decoded.
func CheckJSON(body []byte) error {
	if err := jsonscan.Check(body); err != nil {
		return fault.New(fault.Invalid, "json_too_complex", "the request body %v", err)
	}
	return nil
}

// ChargeDecoded charges the account with about the memory that decoding the members
// takes: their text again, and a few structures for each object in it.
func ChargeDecoded(account *memlimit.Account, members []Member) error {
	n := 0
	for _, m := range members {
		n += DecodedBytes(m.Value)
	}
	return account.Acquire(n)
}

// Charge charges the account with the bytes that are kept. There must be room, too, for those that are passing: they are
// needed for a moment.
func Charge(account *memlimit.Account, kept, passing int) error {
	if err := account.Acquire(kept + passing); err != nil {
		return err
	}
	account.Release(passing)
	return nil
}

// DecodedBytes returns about how much memory decoding a JSON value takes: see [ChargeDecoded].
func DecodedBytes(value []byte) int { return len(value) + objectBytes*bytes.Count(value, []byte("{")) }

// maxModel is the most bytes of a model's name, which is stored with the run and listed. The
// longest that a provider has are ARNs.
const maxModel = 512

// modelName returns the last "model" of the body.
func modelName(members []Member) (string, error) {
	var name string
	found := false
	for _, m := range members {
		if m.Name != "model" {
			continue
		}
		found = true
		if m.Value[0] == '"' {
			name = jsonscan.Text(m.Value)
		} else if err := json.Unmarshal(m.Value, &name); err != nil {
			return "", fault.New(fault.Invalid, "invalid_type", "model is not a string").In("model")
		}
	}
	if !found || name == "" {
		return "", fault.New(fault.Invalid, "missing_required_parameter", "the request names no model").In("model")
	}
	if len(name) > maxModel {
		return "", InvalidValue("model", "the name of the model has %d bytes, and at most %d are allowed", len(name), maxModel)
	}
	return name, nil
}

// withModel returns the body with the provider's name for the model in every
// top-level "model" that has another value: whichever of several a provider
// reads, it is the one that was routed. Without a change it is the body itself.
func withModel(body []byte, members []Member, theirs string) []byte {
	var out, value []byte
	done := 0
	for _, m := range members {
		if m.Name != "model" || m.Value[0] == '"' && jsonscan.Text(m.Value) == theirs {
			continue
		}
		if out == nil {
			value = jsonscan.AppendString(nil, theirs)
			out = make([]byte, 0, len(body)+len(value))
		}
		out = append(append(out, body[done:m.At]...), value...)
		done = m.At + len(m.Value)
	}
	if done == 0 {
		return body
	}
	return append(out, body[done:]...)
}
