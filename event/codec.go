package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version of the JSON that [Encode] writes. [Decode] refuses any other.
const Version = 1

// The errors of [Decode] for an event of another build.
var (
	ErrUnknownVersion = errors.New("event of an unknown version")
	ErrUnknownType    = errors.New("event of an unknown type")
)

// Encode returns the event as JSON: {"v":1,"type":"text_delta",…}, without HTML escapes.
// The same event always gives the same bytes. RelayHead and RelayBody are refused: they
// are passed on while they happen and never stored.
func Encode(e Event) ([]byte, error) {
	if e == nil || decoders[e.Type()] == nil {
		return nil, fmt.Errorf("%w: %T cannot be stored", ErrUnknownType, e)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"v":%d,"type":%q,`, Version, e.Type())
	fields, err := encode(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Type(), err)
	}
	out.Write(bytes.TrimSuffix(fields[1:], []byte("\n"))) // they follow in the same object; every type has one at least
	return out.Bytes(), nil
}

// Decode reads what Encode has written. It ignores fields that it does not know. The
// error wraps ErrUnknownVersion or ErrUnknownType for an event of another build.
func Decode(data []byte) (Event, error) {
	var head struct {
		Version int    `json:"v"`
		Type    string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	if head.Version != Version {
		return nil, fmt.Errorf("%w: %d, this build reads %d", ErrUnknownVersion, head.Version, Version)
	}
	decode := decoders[head.Type]
	if decode == nil {
		return nil, fmt.Errorf("%w: %.40q", ErrUnknownType, head.Type)
	}
	e, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", head.Type, err)
	}
	return e, nil
}

// decoders has the types of event that can be stored, by name.
var decoders = map[string]func([]byte) (Event, error){
	Started{}.Type():         decode[Started],
	ToolsListed{}.Type():     decode[ToolsListed],
	RoundStarted{}.Type():    decode[RoundStarted],
	ModelFallback{}.Type():   decode[ModelFallback],
	TextDelta{}.Type():       decode[TextDelta],
	ReasoningDelta{}.Type():  decode[ReasoningDelta],
	RefusalDelta{}.Type():    decode[RefusalDelta],
	CallDelta{}.Type():       decode[CallDelta],
	NativeItem{}.Type():      decode[NativeItem],
	Citation{}.Type():        decode[Citation],
	NativeProgress{}.Type():  decode[NativeProgress],
	ItemDone{}.Type():        decode[ItemDone],
	RoundDone{}.Type():       decode[RoundDone],
	ToolStarted{}.Type():     decode[ToolStarted],
	ToolDone{}.Type():        decode[ToolDone],
	Waiting{}.Type():         decode[Waiting],
	ApprovalDecided{}.Type(): decode[ApprovalDecided],
	Paused{}.Type():          decode[Paused],
	LimitsRaised{}.Type():    decode[LimitsRaised],
	HookRan{}.Type():         decode[HookRan],
	Compacted{}.Type():       decode[Compacted],
	Finished{}.Type():        decode[Finished],
}

func decode[T Event](data []byte) (Event, error) {
	var e T
	err := json.Unmarshal(data, &e)
	return e, err
}
