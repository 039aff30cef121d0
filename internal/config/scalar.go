package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// scalar is a key with one value of type T.
type scalar[T any] struct {
	into  *T
	def   T
	typ   string
	said  string // the default in words, where show(def) would not tell
	show  func(T) string
	hide  func(T) string // show, without credentials; nil = show
	wire  func(T) any    // for JSON; nil = the value itself
	parse func(raw) (T, error)
}

func (s scalar[T]) reset()           { *s.into = s.def }
func (s scalar[T]) typeName() string { return s.typ }

func (s scalar[T]) defaultText() string {
	if s.said != "" {
		return s.said
	}
	return s.show(s.def)
}

func (s scalar[T]) decode(d *decoder, path string, n ast.Node) {
	v, err := s.parse(rawOf(n))
	if err != nil {
		d.failNode(n, path, "%v", err)
		return
	}
	*s.into = v
}

func (s scalar[T]) fromEnv(text string) error {
	v, err := s.parse(raw{isLoose, text})
	if err != nil {
		return err
	}
	*s.into = v
	return nil
}

func (s scalar[T]) json() any {
	if s.wire == nil {
		return *s.into
	}
	return s.wire(*s.into)
}

func (s scalar[T]) shown() string {
	if s.hide != nil {
		return s.hide(*s.into)
	}
	return s.show(*s.into)
}

func (s scalar[T]) changed() (string, bool) {
	now := s.show(*s.into)
	return now, now != s.show(s.def)
}

// or gives the default a description: "the surface's own".
func (s scalar[T]) or(said string) scalar[T] {
	s.said = said
	return s
}

func wrongType(r raw, want string) error {
	return fmt.Errorf("found %s, want %s", r, want)
}

// text is a key with one line of text that check accepts.
func text[T ~string](into *T, def T, want string, check func(string) error) scalar[T] {
	return scalar[T]{into: into, def: def, typ: want, show: showText[T], wire: filled(def), parse: func(r raw) (T, error) {
		switch r.kind {
		case isText, isLoose:
			return T(r.text), check(r.text)
		case isNumber, isBool:
			return "", fmt.Errorf("found %s, want %s (put it in quotes)", r, want)
		}
		return "", wrongType(r, want)
	}}
}

func showText[T ~string](s T) string {
	if s == "" {
		return `""`
	}
	return string(s)
}

// filled returns the JSON of a value: the default instead of a zero value, which
// stands for it in the stores, and unset without a default.
func filled[T comparable](def T) func(T) any {
	return func(v T) any {
		if v = cmp.Or(v, def); v == *new(T) {
			return unset{}
		}
		return v
	}
}

// unset is the JSON of a text without a value: the member is left out.
type unset struct{}

// address is a key with an http or https URL. Its query may hold a credential.
func address(into *string, check func(string) error) scalar[string] {
	s := text(into, "", "http or https URL", check)
	s.hide = func(written string) string {
		if before, _, query := strings.Cut(written, "?"); query {
			return before + "?[redacted]"
		}
		return showText(written)
	}
	return s
}

// receiverURL is a key with the URL of a webhook, whose path may be a credential too.
func receiverURL(into *string) scalar[string] {
	s := text(into, "", "http or https URL", org.CheckWebhookURL)
	s.hide = func(written string) string {
		u, err := url.Parse(written)
		if err != nil || u.Host == "" || u.Path == "" && u.RawQuery == "" {
			return showText(written)
		}
		return u.Scheme + "://" + u.Host + "/[redacted]"
	}
	return s
}

// word is a key with one of a few words. The default may be "", which is not
// among them.
func word[T ~string](into *T, def T, words ...string) scalar[T] {
	s := text(into, def, either(words), func(s string) error { return oneOf(s, words) })
	s.wire = func(v T) any {
		if v = cmp.Or(v, def); v == "" {
			return nil
		}
		return v
	}
	return s
}

func oneOf(s string, words []string) error {
	for _, w := range words {
		if s == w {
			return nil
		}
	}
	return fmt.Errorf("%s is not allowed; want %s", quote(s), either(words))
}

// either lists words as a sentence does: a, b or c.
func either(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func integer(into *int, def, least, most int) scalar[int] {
	return numberOf(into, 1, def, least, most)
}

// mebibytes is a whole number of MiB that is kept in bytes.
func mebibytes(into *int64, def, least, most int) scalar[int64] {
	return numberOf(into, 1<<20, def, least, most)
}

// seconds is a whole number of seconds.
func seconds(into *time.Duration, def, least, most int) scalar[time.Duration] {
	return numberOf(into, time.Second, def, least, most)
}

// numberOf is a whole number that is kept as so many units.
func numberOf[T ~int | ~int64](into *T, unit T, def, least, most int) scalar[T] {
	return scalar[T]{
		into: into, def: T(def) * unit, typ: "whole number " + span(least, most),
		show: func(v T) string { return strconv.FormatInt(int64(v/unit), 10) },
		wire: func(v T) any {
			if v == 0 && least > 0 { // the default, in the stores
				return def
			}
			return int(v / unit)
		},
		parse: func(r raw) (T, error) {
			n, err := parseInt(r, least, most)
			return T(n) * unit, err
		},
	}
}

// maybeInteger is an integer whose absence means something else.
func maybeInteger(into **int, least, most int) scalar[*int] {
	show := func(n *int) string {
		if n == nil {
			return "unset"
		}
		return strconv.Itoa(*n)
	}
	return scalar[*int]{
		into: into, typ: "whole number " + span(least, most), show: show,
		parse: func(r raw) (*int, error) {
			n, err := parseInt(r, least, most)
			return &n, err
		},
	}
}

func span(least, most int) string { return fmt.Sprintf("(%d..%d)", least, most) }

func parseInt(r raw, least, most int) (int, error) {
	want := "a whole number " + span(least, most)
	if r.kind != isNumber && r.kind != isLoose {
		return 0, wrongType(r, want)
	}
	n, err := strconv.Atoi(r.text)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is out of range %s", r.text, span(least, most))
	case err != nil:
		return 0, wrongType(r, want)
	case n < least || n > most:
		return 0, fmt.Errorf("%d is out of range %s", n, span(least, most))
	}
	return n, nil
}

func boolean(into *bool, def bool) scalar[bool] {
	return scalar[bool]{into: into, def: def, typ: "true or false", show: strconv.FormatBool, parse: parseBool}
}

func maybeBoolean(into **bool) scalar[*bool] {
	show := func(b *bool) string {
		if b == nil {
			return "unset"
		}
		return strconv.FormatBool(*b)
	}
	return scalar[*bool]{into: into, typ: "true or false", show: show, parse: func(r raw) (*bool, error) {
		b, err := parseBool(r)
		return &b, err
	}}
}

func parseBool(r raw) (bool, error) {
	if r.kind == isLoose {
		switch strings.ToLower(r.text) {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return false, fmt.Errorf("%s is not allowed; want true, false, 1 or 0", quote(r.text))
	}
	if r.kind != isBool {
		return false, wrongType(r, "true or false")
	}
	return r.text == "true", nil
}

func duration(into *time.Duration, def, least, most time.Duration) scalar[time.Duration] {
	limits := fmt.Sprintf("(%s..%s)", showDuration(least), showDuration(most))
	return scalar[time.Duration]{
		into: into, def: def, typ: "duration " + limits, show: showDuration,
		wire: func(d time.Duration) any {
			if d == 0 && least > 0 { // the default, in the stores
				d = def
			}
			return d.String()
		},
		parse: func(r raw) (time.Duration, error) {
			if r.kind != isText && r.kind != isLoose && r.text != "0" {
				return 0, wrongType(r, `a duration such as "30s" or "10m" `+limits)
			}
			v, err := time.ParseDuration(r.text)
			switch {
			case err != nil:
				return 0, wrongType(r, `a duration such as "30s" or "10m" `+limits)
			case v < least || v > most:
				return 0, fmt.Errorf("%s is out of range %s", r.text, limits)
			}
			return v, nil
		},
	}
}

// orForever accepts the word never in place of a duration, for [org.Forever].
func orForever(d scalar[time.Duration]) scalar[time.Duration] {
	const never = "never"
	show, wire, parse := d.show, d.wire, d.parse
	d.typ += " or never"
	d.show = func(v time.Duration) string {
		if v == org.Forever {
			return never
		}
		return show(v)
	}
	d.wire = func(v time.Duration) any {
		if v == org.Forever {
			return never
		}
		return wire(v)
	}
	d.parse = func(r raw) (time.Duration, error) {
		if r.kind == isText && r.text == never {
			return org.Forever, nil
		}
		return parse(r)
	}
	return d
}

// showDuration writes 10m where the standard library writes 10m0s.
func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// timestamp is a time with seconds; the zero time is never.
func timestamp(into *time.Time) scalar[time.Time] {
	const want = "a time such as 2027-01-31T18:00:00Z"
	show := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.UTC().Format(time.RFC3339)
	}
	return scalar[time.Time]{
		into: into, typ: "time such as 2027-01-31T18:00:00Z", show: show,
		wire: func(t time.Time) any {
			if t.IsZero() {
				return nil
			}
			return show(t)
		},
		parse: func(r raw) (time.Time, error) {
			if r.kind != isText && r.kind != isLoose {
				return time.Time{}, wrongType(r, want)
			}
			t, err := time.Parse(time.RFC3339, r.text)
			if err != nil {
				return time.Time{}, fmt.Errorf("%s is not %s", quote(r.text), want)
			}
			return t.UTC().Truncate(time.Second), nil
		},
	}
}
