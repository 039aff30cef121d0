package surface

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// CheckQuery refuses parameters of a URL that are not known, and those that are given twice.
func CheckQuery(values url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return fault.New(fault.Invalid, "unknown_parameter", "unknown parameter %.80q; this request has no parameters", name).In(name)
		case !slices.Contains(known, name):
			return fault.New(fault.Invalid, "unknown_parameter", "unknown parameter %.80q; known parameters are %s", name, strings.Join(known, ", ")).In(name)
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

// InvalidValue returns the error for a parameter or a member of a body whose value is not
// allowed.
func InvalidValue(param, format string, args ...any) error {
	return fault.New(fault.Invalid, "invalid_value", format, args...).In(param)
}

// Timestamp returns Unix milliseconds in RFC 3339 format, in UTC.
func Timestamp(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
