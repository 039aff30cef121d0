package loop

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The errors that Decode wraps for a fact of a newer build.
var (
	ErrUnknownKind    = errors.New("unknown kind of fact")
	ErrUnknownVersion = errors.New("unknown version of a fact")
)

// Encode returns the body as a journal stores it, beside its kind.
func Encode(b Body) ([]byte, error) { return json.Marshal(b) }

// Known returns nil for a fact that Decode can read unless it is damaged, else an
// error that wraps ErrUnknownVersion or ErrUnknownKind.
func Known(version int, kind Kind) error {
	_, err := Decode(version, kind, []byte("{}"))
	return err
}

// Decode reads the stored body of a fact of that version. A kind or a version
// that a newer build has written is refused: what it means is not known here.
func Decode(version int, kind Kind, data []byte) (Body, error) {
	if version > Version {
		return nil, fmt.Errorf("%w: %d of %q; this build knows versions up to %d", ErrUnknownVersion, version, kind, Version)
	}
	switch kind {
	case KindAccepted:
		return decode[Accepted](data)
	case KindCatalogued:
		return decode[Catalogued](data)
	case KindBlocked:
		return decode[Blocked](data)
	case KindInputAdded:
		return decode[InputAdded](data)
	case KindReserved:
		return decode[Reserved](data)
	case KindReserveRefused:
		return decode[ReserveRefused](data)
	case KindTurnStarted:
		return decode[TurnStarted](data)
	case KindTurnFailed:
		return decode[TurnFailed](data)
	case KindTurn:
		return decode[Turn](data)
	case KindCallPrepared:
		return decode[CallPrepared](data)
	case KindCallStarted:
		return decode[CallStarted](data)
	case KindCallDone:
		return decode[CallDone](data)
	case KindCallWaiting:
		return decode[CallWaiting](data)
	case KindCallResolved:
		return decode[CallResolved](data)
	case KindCancelRequested:
		return decode[CancelRequested](data)
	case KindExpired:
		return decode[Expired](data)
	case KindParked:
		return decode[Parked](data)
	case KindResumed:
		return decode[Resumed](data)
	case KindFinished:
		return decode[Finished](data)
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownKind, kind)
}

func decode[T Body](data []byte) (Body, error) {
	var b T
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("fact %s: %w", b.Kind(), err)
	}
	return b, nil
}
