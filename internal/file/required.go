package file

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Required is a file that a request requires of its run. Its JSON is stored with the run, in the member files of what the request says of the
// calls of the tool that runs code.
type Required struct {
	Name        string `json:"name"` // as the client wrote it
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
}

// The limits on files that a request requires.
const (
	MaxRequired    = 10
	maxRequired    = 1000 // bytes of a path
	maxFormat      = 64
	maxDescription = 1000
)

// WorkDirectory is the name that code has for its working directory, where it has one.
const WorkDirectory = "/work/"

// Path returns the path of the file in the working directory of code. Two files with one path are one.
func (r Required) Path() string { return Inside(r.Name) }

// Inside returns a path in the working directory of code: it is relative, and is not checked.
func Inside(name string) string { return path.Clean(strings.TrimPrefix(name, WorkDirectory)) }

// Check returns what is wrong with a required file, and with which member.
func (r Required) Check() (member string, err error) {
	at := r.Path()
	switch {
	case r.Name == "" || at == "." || strings.HasSuffix(r.Name, "/"):
		return "name", errors.New("must be the name of a file")
	case len(r.Name) > maxRequired:
		return "name", fmt.Errorf("has %d bytes; at most %d are allowed", len(r.Name), maxRequired)
	case !utf8.ValidString(r.Name) || strings.ContainsFunc(r.Name, unicode.IsControl):
		return "name", errors.New("must be text without control characters")
	case path.IsAbs(at) || at == ".." || strings.HasPrefix(at, "../"):
		return "name", errors.New("must be a path in the working directory of the code, such as chart.png")
	case len(path.Base(at)) > MaxName:
		return "name", fmt.Errorf("the name of the file has %d bytes; at most %d are allowed", len(path.Base(at)), MaxName)
	case len(r.Format) > maxFormat || strings.ContainsFunc(r.Format, unicode.IsControl):
		return "format", fmt.Errorf("must be a word of at most %d bytes, such as csv", maxFormat)
	case len(r.Description) > maxDescription:
		return "description", fmt.Errorf("has %d bytes; at most %d are allowed", len(r.Description), maxDescription)
	}
	return "", nil
}

// missingPrefix begins the ids of required files that a run has not made.
const missingPrefix = Prefix + "none-"

// MissingID returns the id of a required file that a run has not made, by its place in the request. It says what is wrong with the file; there
// is no such file.
func MissingID(runID string, place int) string {
	return missingPrefix + strings.TrimPrefix(runID, runPrefix) + "-" + strconv.Itoa(place)
}

// IsMissing reports whether a text has the form of an id of [MissingID].
func IsMissing(id string) bool { return strings.HasPrefix(id, missingPrefix) && len(id) <= maxMissing }

// maxMissing is more than the length of an id of [MissingID].
const maxMissing = 100
