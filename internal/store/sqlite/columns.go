package sqlite

import (
	"encoding/json"
	"fmt"
	"time"
)

// millis is a time as it is stored: 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// asTime scans a time that millis made.
type asTime struct{ to *time.Time }

// Scan implements sql.Scanner.
func (a asTime) Scan(value any) error {
	ms, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", value)
	}
	*a.to = time.Time{}
	if ms != 0 {
		*a.to = time.UnixMilli(ms).UTC()
	}
	return nil
}

// asDuration scans a duration in milliseconds.
type asDuration struct{ to *time.Duration }

// Scan implements sql.Scanner.
func (a asDuration) Scan(value any) error {
	ms, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a duration is stored as %T", value)
	}
	*a.to = time.Duration(ms) * time.Millisecond
	return nil
}

// asJSON scans JSON text into what to points to.
type asJSON struct{ to any }

// Scan implements sql.Scanner.
func (a asJSON) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("JSON is stored as %T", value)
	}
	return json.Unmarshal([]byte(text), a.to)
}
