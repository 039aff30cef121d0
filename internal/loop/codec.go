package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	if decode, ok := decoders[kind]; ok {
		return decode(data)
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownKind, kind)
}

// Kinds returns the kinds of all facts, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(decoders)) }

// decoders has a row for each kind of fact. A test compares it with the types that are a Body.
var decoders = map[Kind]func(data []byte) (Body, error){
	KindAccepted:        decode[Accepted],
	KindBlocked:         decode[Blocked],
	KindCallDone:        decode[CallDone],
	KindCallPrepared:    decode[CallPrepared],
	KindCallResolved:    decode[CallResolved],
	KindCallStarted:     decode[CallStarted],
	KindCallWaiting:     decode[CallWaiting],
	KindCancelRequested: decode[CancelRequested],
	KindCatalogued:      decode[Catalogued],
	KindCompacted:       decode[Compacted],
	KindExpired:         decode[Expired],
	KindFinished:        decode[Finished],
	KindHookRan:         decode[HookRan],
	KindInputAdded:      decode[InputAdded],
	KindLimitsRaised:    decode[LimitsRaised],
	KindParked:          decode[Parked],
	KindPaused:          decode[Paused],
	KindReserved:        decode[Reserved],
	KindReserveRefused:  decode[ReserveRefused],
	KindResumed:         decode[Resumed],
	KindRouted:          decode[Routed],
	KindTurn:            decode[Turn],
	KindTurnFailed:      decode[TurnFailed],
	KindTurnStarted:     decode[TurnStarted],
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
