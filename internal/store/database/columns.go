package database

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// millis returns the stored form of a time: Unix milliseconds, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// asTime scans a time in the form of millis.
type asTime struct{ to *time.Time }

// Scan implements sql.Scanner.
func (a asTime) Scan(value any) error {
	ms, ok := value.(int64)
	if !ok {
		return fmt.Errorf("time column has type %T, want integer", value)
	}
	*a.to = time.Time{}
	if ms != 0 {
		*a.to = time.UnixMilli(ms).UTC()
	}
	return nil
}

// asJSON scans JSON text into the value that to points to.
type asJSON struct{ to any }

// Scan implements sql.Scanner.
func (a asJSON) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("JSON column has type %T, want text", value)
	}
	return json.Unmarshal([]byte(text), a.to)
}

// asSettings scans a JSON object into a struct. It appends to unread the non-empty
// members that the struct does not have, which another version has stored.
type asSettings struct {
	to     any
	unread *[]string
}

// Scan implements sql.Scanner.
func (a asSettings) Scan(value any) error {
	if err := (asJSON{a.to}).Scan(value); err != nil {
		return err
	}
	text, err := encode(a.to)
	if err != nil {
		return err
	}
	if value == text { // as this version stores it
		return nil
	}
	var stored, read map[string]any
	if err := (asJSON{&stored}).Scan(value); err != nil {
		return err
	}
	if err := (asJSON{&read}).Scan(text); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if _, known := read[name]; !known && !isEmpty(stored[name]) {
			*a.unread = append(*a.unread, name)
		}
	}
	return nil
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil || v == "" || v == false || v == 0.0
}
