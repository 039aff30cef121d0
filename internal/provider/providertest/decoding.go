package providertest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Outcome is everything that the decoding of an answer shows.
type Outcome struct {
	Turn   *model.Turn
	Deltas []model.Delta
	Err    string // as fmt.Sprint writes it
}

// Decode reads one answer with the decoder of an adapter.
type Decode func(answer io.Reader, emit func(model.Delta) error) (*model.Turn, error)

// Run returns the outcome of an answer.
func (d Decode) Run(answer io.Reader) Outcome {
	var o Outcome
	turn, err := d(answer, func(delta model.Delta) error {
		o.Deltas = append(o.Deltas, delta)
		return nil
	})
	o.Turn, o.Err = turn, fmt.Sprint(err)
	return o
}

// AtAnySplit fails the test if an outcome depends on where the network cuts the
// bytes of a recorded answer.
func AtAnySplit(t *testing.T, all []Recording, decode Decode) {
	for _, r := range all {
		if r.Response.Status != http.StatusOK {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			want := decode.Run(bytes.NewReader(r.Body))
			if got := decode.Run(iotest.OneByteReader(bytes.NewReader(r.Body))); !reflect.DeepEqual(got, want) {
				t.Errorf("byte by byte: %+v, want %+v", got, want)
			}
			random := rand.New(rand.NewPCG(1, uint64(len(r.Body))))
			for range 40 {
				at := random.IntN(len(r.Body) + 1)
				halves := io.MultiReader(bytes.NewReader(r.Body[:at]), bytes.NewReader(r.Body[at:]))
				if got := decode.Run(halves); !reflect.DeepEqual(got, want) {
					t.Errorf("split at %d: %+v, want %+v", at, got, want)
				}
			}
		})
	}
}

// CutOff cuts recorded streams off at random places. It fails the test if a turn
// looks finished before its end, or a call is complete that is not the one of the
// whole stream.
func CutOff(t *testing.T, all []Recording, decode Decode) {
	for _, r := range all {
		if r.Response.Status != http.StatusOK || !r.Streamed || r.Expected.Error != nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			whole := decode.Run(bytes.NewReader(r.Body)).Turn
			random := rand.New(rand.NewPCG(2, uint64(len(r.Body))))
			for range 60 {
				at := random.IntN(len(r.Body))
				got := decode.Run(bytes.NewReader(r.Body[:at]))
				switch {
				case got.Err == fmt.Sprint(error(nil)):
					if got.Turn.Stop != whole.Stop || got.Turn.Text() != whole.Text() {
						t.Fatalf("cut at %d: %+v", at, got.Turn)
					}
				case got.Turn != nil:
					checkPartial(t, at, got.Turn, whole)
				}
			}
		})
	}
}

// checkPartial checks a turn that came beside an error.
func checkPartial(t *testing.T, at int, got, whole *model.Turn) {
	t.Helper()
	if got.Stop != "" {
		t.Fatalf("cut at %d: %+v", at, got)
	}
	for i, c := range got.Calls {
		if c.Complete && !reflect.DeepEqual(c, whole.Calls[i]) {
			t.Fatalf("cut at %d: %+v", at, got)
		}
	}
}

// Serve starts a provider on the loopback interface, which ends with the test, and
// returns how to call it, with the changes.
func Serve(t testing.TB, h http.HandlerFunc, change ...func(*wire.Endpoint)) wire.Endpoint {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	e := wire.Endpoint{BaseURL: srv.URL + "/v1", Transport: srv.Client().Transport}
	for _, c := range change {
		c(&e)
	}
	return e
}

// Answer serves one body, whatever is asked.
func Answer(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
