package loop

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrUnknownKind is wrapped by Decode for a fact that this version cannot read.
var ErrUnknownKind = errors.New("unknown kind of fact")

// Encode returns the body as a journal stores it, beside its kind.
func Encode(b Body) ([]byte, error) { return json.Marshal(b) }

// Decode reads a stored body.
func Decode(kind Kind, data []byte) (Body, error) {
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
