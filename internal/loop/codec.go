package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The errors that Decode wraps for a fact that a newer build has written.
var (
	ErrUnknownKind    = errors.New("unknown fact kind")
	ErrUnknownVersion = errors.New("unknown fact version")
	ErrUnknownValue   = errors.New("unknown value") // of a field that has one of a closed set
)

// Encode returns the body as JSON. The journal stores its kind and version beside it.
func Encode(b Body) ([]byte, error) { return json.Marshal(b) }

// CanDecode returns nil if this build can decode facts of the version and kind. Else the
// error wraps ErrUnknownVersion or ErrUnknownKind.
func CanDecode(version int, kind Kind) error {
	_, err := Decode(version, kind, []byte("{}"))
	if errors.Is(err, ErrUnknownValue) { // it is a kind whose fields must not be empty
		return nil
	}
	return err
}

// CheckKnown returns nil if this build can decode the fact from its stored form. Else the error
// wraps one of the errors of Decode for a fact of a newer build.
func CheckKnown(f Fact) error {
	if err := CanDecode(f.Version, f.Body.Kind()); err != nil {
		return err
	}
	return checkValues(f.Body)
}

// checkValues returns an error if a field has none of the values of its closed set.
func checkValues(b Body) error {
	switch b := b.(type) {
	case CallWaiting:
		return checkValue("on", b.On, OnApproval, OnQuestion, OnChild)
	case InputAdded:
		return checkValue("by", b.By, ByClient, ByHook, ByOther)
	case HookRan:
		return errors.Join(
			checkValue("point", b.Point, OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse),
			checkValue("verdict", b.Verdict, HookAllow, HookDeny, HookModify, HookAsk))
	case Accepted:
		for _, h := range b.Hooks {
			if err := errors.Join(
				checkValue("point", h.Point, OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse, OnRunComplete),
				checkValue("type", h.Type, HookRules, HookHTTP, HookApproval, HookFunction)); err != nil {
				return err
			}
		}
	case Blocked, CallDone, CallPrepared, CallResolved, CallStarted, CancelRequested, Catalogued, Compacted,
		Expired, Finished, LimitsRaised, Parked, Paused, ReserveRefused, Reserved, Resumed, Routed, Turn, TurnFailed, TurnStarted: // every value is read
	}
	return nil
}

func checkValue[T ~string](field string, v T, known ...T) error {
	if slices.Contains(known, v) {
		return nil
	}
	return fmt.Errorf("%w of %s: %q", ErrUnknownValue, field, v)
}

// Decode parses the stored body of a fact. The error wraps ErrUnknownVersion, ErrUnknownKind
// or ErrUnknownValue for a fact of a newer build; any other error means that data is
// damaged.
func Decode(version int, kind Kind, data []byte) (Body, error) {
	if version > Version {
		return nil, fmt.Errorf("%w: %q has version %d, this build supports up to %d", ErrUnknownVersion, kind, version, Version)
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
	case KindHookRan:
		return decode[HookRan](data)
	case KindCompacted:
		return decode[Compacted](data)
	case KindLimitsRaised:
		return decode[LimitsRaised](data)
	case KindReserved:
		return decode[Reserved](data)
	case KindReserveRefused:
		return decode[ReserveRefused](data)
	case KindRouted:
		return decode[Routed](data)
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
	case KindPaused:
		return decode[Paused](data)
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
		return nil, fmt.Errorf("decode fact %s: %w", b.Kind(), err)
	}
	if err := checkValues(b); err != nil {
		return nil, fmt.Errorf("decode fact %s: %w", b.Kind(), err)
	}
	return b, nil
}
