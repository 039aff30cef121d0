package audit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Witness is the second place for checkpoints: an append-only file. Changes to the
// store are detected as long as the file is intact. Without a path there is none: nothing is
// kept, and nothing is read.
type Witness struct{ Path string }

// witnessLine is a checkpoint as stored in the file.
type witnessLine struct {
	Org       string `json:"org"`
	Number    int64  `json:"number"`
	Cut       bool   `json:"cut,omitempty"`
	Lost      bool   `json:"lost,omitempty"`
	At        int64  `json:"at"`
	Hash      string `json:"hash"`
	Signature string `json:"signature"`
}

// Add appends the checkpoint to the file. It is on disk when Add returns.
func (w Witness) Add(c Checkpoint) error {
	if w.Path == "" {
		return nil
	}
	text, err := json.Marshal(witnessLine{c.Org, c.Number, c.Pruned, c.LossAccepted, c.At, c.Hash.String(), base64.StdEncoding.EncodeToString(c.Signature)})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(appendLine(file, text), file.Close())
}

// appendLine appends a line. It starts a new one if the last line is incomplete, which
// is the case after a crash during a write.
func appendLine(file *os.File, text []byte) error {
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

// maxLine is the length, in bytes, from which Read reports a line as malformed. The
// gateway's own lines are shorter than 1 KiB.
const maxLine = 64 << 10

// errLineTooLong reports a line of more than maxLine bytes.
var errLineTooLong = fmt.Errorf("longer than %d bytes", maxLine)

// MalformedLine is a line of the file that is not a checkpoint.
type MalformedLine struct {
	Line   int // from 1
	Reason string
}

// Read returns the checkpoints in the order of the file, and its malformed lines.
// A missing file has no lines.
func (w Witness) Read() (out []Checkpoint, malformed []MalformedLine, err error) {
	if w.Path == "" {
		return nil, nil, nil
	}
	file, err := os.Open(w.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, maxLine)
	for number := 1; ; number++ {
		text, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return out, malformed, nil
		}
		if err != nil && !errors.Is(err, errLineTooLong) {
			return nil, nil, err
		}
		var c Checkpoint
		if err == nil {
			c, err = parseLine(text)
		}
		if err != nil {
			malformed = append(malformed, MalformedLine{number, err.Error()})
			continue
		}
		out = append(out, c)
	}
}

// readLine returns the next line without its newline, errLineTooLong if it does not fit
// the buffer, or io.EOF. The result is valid until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		if len(text) > 0 && errors.Is(err, io.EOF) { // the last line has no newline
			err = nil
		}
		return bytes.TrimSuffix(text, []byte("\n")), err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return nil, errLineTooLong
}

func parseLine(data []byte) (Checkpoint, error) {
	var l witnessLine
	if err := json.Unmarshal(data, &l); err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{Org: l.Org, Number: l.Number, Pruned: l.Cut, LossAccepted: l.Lost, At: l.At}
	var err error
	if c.Hash, err = ParseHash(l.Hash); err != nil {
		return c, err
	}
	c.Signature, err = base64.StdEncoding.DecodeString(l.Signature)
	return c, err
}

func formatTime(at int64) string { return time.UnixMilli(at).UTC().Format(time.DateTime) + " UTC" }
