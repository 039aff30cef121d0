package surface

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// The limits of an [OffsetPage].
const (
	defaultLimit = 50
	MaxLimit     = 200
	MaxOffset    = 1_000_000
)

// OffsetPage is the part of a list that a request asks for with limit and offset, as its answer says it.
type OffsetPage struct {
	Total  int `json:"total"` // entries of the list
	Limit  int `json:"limit"`
	Offset int `json:"offset"`
}

// ReadOffsetPage reads limit and offset. known are the other parameters that the request may have.
func ReadOffsetPage(r *http.Request, known ...string) (p OffsetPage, err error) {
	query := r.URL.Query()
	if err := CheckQuery(query, append([]string{"limit", "offset"}, known...)...); err != nil {
		return p, err
	}
	if p.Limit, err = QueryNumber(query, "limit", defaultLimit, 1, MaxLimit); err != nil {
		return p, err
	}
	p.Offset, err = QueryNumber(query, "offset", 0, 0, MaxOffset)
	return p, err
}

// Of returns the answer with the entries of the page, under a name, of a list with so many entries.
func (p OffsetPage) Of(name string, entries any, total int) json.Marshaler {
	p.Total = total
	return listed{name, entries, p}
}

// listed is the answer with a page of a list.
type listed struct {
	name    string
	entries any
	page    OffsetPage
}

// MarshalJSON implements json.Marshaler.
func (l listed) MarshalJSON() ([]byte, error) {
	entries, err := Marshal(l.entries)
	if err != nil {
		return nil, err
	}
	page, err := Marshal(l.page)
	return slices.Concat([]byte(`{"`+l.name+`":`), entries, []byte(","), page[1:]), err
}

// Given returns a text; nil for "".
func Given[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// Each returns what wire makes of each one; an empty list of none, not nil.
func Each[E, T any](all []E, wire func(E) T) []T {
	out := make([]T, len(all))
	for i, e := range all {
		out[i] = wire(e)
	}
	return out
}

// Cut returns the entries of a page.
func Cut[T any](all []T, p OffsetPage) []T {
	all = all[min(p.Offset, len(all)):]
	return all[:min(p.Limit, len(all))]
}

// NextPage is a part of a list. Next goes into the parameter after for the part behind it.
type NextPage[T, N any] struct {
	Data []T `json:"data"`
	Next *N  `json:"next"` // nil at the end
}

// IDPage is a part of a list whose next part is asked for with the id of an entry.
type IDPage[T any] struct {
	Object  string `json:"object"` // list
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"` // the list goes on
	ends
}

// OpenAIPage is an IDPage with the order of members that the OpenAI API has.
type OpenAIPage[T any] struct {
	Object string `json:"object"` // list
	Data   []T    `json:"data"`
	ends
	HasMore bool `json:"has_more"`
}

type ends struct {
	FirstID *string `json:"first_id"` // nil = there are no entries
	LastID  *string `json:"last_id"`
}

// NewIDPage returns the page of up to limit entries of found, as wire shows them. A further one shows that there are more.
func NewIDPage[E, T any](found []E, limit int, wire func(E) T, id func(T) string) IDPage[T] {
	p := IDPage[T]{Object: "list", Data: Each(found[:min(len(found), limit)], wire), HasMore: len(found) > limit}
	if n := len(p.Data); n > 0 {
		p.FirstID, p.LastID = new(id(p.Data[0])), new(id(p.Data[n-1]))
	}
	return p
}

// OpenAI returns the page in the form of the OpenAI API.
func (p IDPage[T]) OpenAI() OpenAIPage[T] { return OpenAIPage[T]{p.Object, p.Data, p.ends, p.HasMore} }

// TimeForm is how precisely an API writes its times, which are in RFC 3339 format, in UTC.
type TimeForm string

// The precisions of times.
const (
	Seconds      TimeForm = time.RFC3339
	Milliseconds TimeForm = "2006-01-02T15:04:05.000Z07:00"
)

// Text returns a time.
func (f TimeForm) Text(t time.Time) string { return t.UTC().Format(string(f)) }

// Time returns a time; nil for the zero time.
func (f TimeForm) Time(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(f.Text(t))
}

// Unix returns a time in Unix milliseconds; nil for 0.
func (f TimeForm) Unix(ms int64) *string {
	if ms == 0 {
		return nil
	}
	return new(f.Text(time.UnixMilli(ms)))
}

// Timestamp returns Unix milliseconds with [Milliseconds].
func Timestamp(ms int64) string { return Milliseconds.Text(time.UnixMilli(ms)) }
