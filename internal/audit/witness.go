package audit

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Witness is the second place where checkpoints are kept: a file to which lines
// are added. Whoever can change the store and not this file cannot hide what
// they did.
type Witness struct{ Path string }

// line is a checkpoint as it stands in the file.
type line struct {
	Org       string `json:"org"`
	Number    int64  `json:"number"`
	Cut       bool   `json:"cut,omitempty"`
	At        int64  `json:"at"`
	Hash      string `json:"hash"`
	Signature string `json:"signature"`
}

// Add writes the checkpoint to the end of the file. It is on disk when Add
// returns.
func (w Witness) Add(c Checkpoint) error {
	text, err := json.Marshal(line{c.Org, c.Number, c.Cut, c.At, c.Hash.String(), base64.StdEncoding.EncodeToString(c.Signature)})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(addLine(file, text), file.Close())
}

// addLine begins a new line where the machine went down while the last one was
// written.
func addLine(file *os.File, text []byte) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if size := info.Size(); size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		text = append([]byte{'\n'}, text...)
	}
	if _, err := file.Write(append(text, '\n')); err != nil {
		return err
	}
	return file.Sync()
}

// Read returns all checkpoints, and how many lines are none. A file that is not
// there has no lines.
func (w Witness) Read() (out []Checkpoint, strange int, err error) {
	file, err := os.Open(w.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		c, err := parseLine(lines.Bytes())
		if err != nil {
			strange++
			continue
		}
		out = append(out, c)
	}
	return out, strange, lines.Err()
}

func parseLine(data []byte) (Checkpoint, error) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{Org: l.Org, Number: l.Number, Cut: l.Cut, At: l.At}
	var err error
	if c.Hash, err = ParseHash(l.Hash); err != nil {
		return c, err
	}
	c.Signature, err = base64.StdEncoding.DecodeString(l.Signature)
	return c, err
}

func day(at int64) string { return time.UnixMilli(at).UTC().Format(time.DateTime) + " UTC" }
