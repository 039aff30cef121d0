package audit

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
)

// The body of a Request is what json.Marshal writes, for every field and odd value.
func TestRequestBodyIsThatOfMarshal(t *testing.T) {
	texts := []string{"", "plain text", "<&>\"\\", "\x00\n\u007f", "é 日本 \u2028", "bad \xff utf-8"}
	numbers := []int64{0, 1, -7, math.MaxInt64, math.MinInt64}
	floats := []float64{0, math.Copysign(0, -1), 0.001, 1.234, 12345678.9, 1e-7, 1e21, 1e20, -2.5, math.MaxFloat64, math.SmallestNonzeroFloat64}
	kind := reflect.TypeFor[Request]()
	for i := range kind.NumField() {
		var values []any
		switch kind.Field(i).Type.String() {
		case "string":
			values = anys(texts, func(s string) any { return s })
		case "int":
			values = anys(numbers, func(n int64) any { return int(n) })
		case "int64":
			values = anys(numbers, func(n int64) any { return n })
		case "*int":
			values = append(anys(numbers, func(n int64) any { v := int(n); return &v }), (*int)(nil))
		case "float64":
			values = anys(floats, func(f float64) any { return f })
		case "*float64":
			values = append(anys(floats, func(f float64) any { return &f }), (*float64)(nil))
		default:
			t.Fatalf("field %s has the type %s", kind.Field(i).Name, kind.Field(i).Type)
		}
		for _, v := range values {
			var r Request
			reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(v))
			sameAsMarshal(t, r)
		}
	}
}

func anys[T any](of []T, convert func(T) any) (out []any) {
	for _, v := range of {
		out = append(out, convert(v))
	}
	return out
}

func sameAsMarshal(t *testing.T, r Request) {
	t.Helper()
	want, wantErr := json.Marshal(r)
	got, err := Entry{Body: r}.body()
	if (err != nil) != (wantErr != nil) || err == nil && string(got) != string(want) {
		t.Errorf("got %s, %v, want %s, %v", got, err, want, wantErr)
	}
}

func TestRequestBodyRefusesWhatIsNoNumber(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		sameAsMarshal(t, Request{LatencyMS: f})
		sameAsMarshal(t, Request{TTFTMS: &f})
	}
}

func FuzzRequestBody(f *testing.F) {
	f.Add("relay", "chat", int64(200), 1.5, 0.25)
	f.Add("<\"\\\xff", "", int64(-1), 1e-9, math.Inf(1))
	f.Fuzz(func(t *testing.T, a, b string, n int64, x, y float64) {
		round := int(n)
		sameAsMarshal(t, Request{
			Surface: a, Via: b, Round: &round, Call: &round, Provider: b, Model: a, Target: b, Attempts: round, Status: a, HTTPStatus: round, Class: b, Stop: a,
			InputTokens: n, OutputTokens: -n, CachedTokens: n, ReasoningTokens: n, ToolCalls: round, Bytes: n, LatencyMS: x, TTFTMS: &y,
		})
	})
}
