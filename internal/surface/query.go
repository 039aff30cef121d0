package surface

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/spelling"
)

// Unknown returns the error for a name that a request has and the API does not: that of a member of the body, or of a
// parameter of the URL, as kind says. at is its place in the request. Of the known names, it suggests the nearest.
func Unknown(kind, at, name string, known ...string) error {
	remedy := "this request has no " + kind + "s"
	switch nearest := spelling.Nearest(name, known); {
	case nearest != "" && strings.EqualFold(nearest, name):
		remedy = "names are case-sensitive; write " + nearest
	case nearest != "":
		remedy = "did you mean " + nearest + "?"
	case len(known) > 0:
		remedy = "known " + kind + "s are " + strings.Join(known, ", ")
	}
	return fault.New(fault.Invalid, "unknown_parameter", "unknown %s %.100q; %s", kind, at, remedy).In(at)
}

// CheckQuery refuses parameters of a URL that are not known, and those that are given twice.
func CheckQuery(values url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name):
			return Unknown("parameter", name, name, known...)
		case len(values[name]) > 1:
			return InvalidValue(name, "%s is given more than once", name)
		}
	}
	return nil
}

// QueryNumber returns the parameter with a name, a whole number from least to most, or
// otherwise if it is missing or empty.
func QueryNumber(values url.Values, name string, otherwise, least, most int) (int, error) {
	text := values.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, InvalidValue(name, "%s must be a whole number from %d to %d", name, least, most)
	}
	return n, nil
}

// QueryTime returns the parameter with a name, a time, or the zero time if it is missing or empty.
func QueryTime(values url.Values, name string) (at time.Time, err error) {
	if text := values.Get(name); text != "" {
		if at, err = time.Parse(time.RFC3339, text); err != nil {
			return at, InvalidValue(name, "%s must be a time in RFC 3339 format, for example 2026-01-31T12:00:00Z", name)
		}
	}
	return at, nil
}

// InvalidValue returns the error for a parameter or a member of a body whose value is not
// allowed.
func InvalidValue(param, format string, args ...any) error {
	return fault.New(fault.Invalid, "invalid_value", format, args...).In(param)
}
