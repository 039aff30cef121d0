package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/model"
)

// invoked returns the recordings of Claude behind InvokeModel of Bedrock, with their
// streams as the Messages API would have sent them: Bedrock wraps each event in base64
// and a binary frame.
func invoked(t testing.TB) []providertest.Recording {
	t.Helper()
	all := providertest.Recordings(t, "bedrock-invoke")
	for i := range all {
		if all[i].Streamed {
			all[i].Body = unwrapped(t, all[i].Body)
		}
	}
	return all
}

func unwrapped(t testing.TB, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	r, d := bytes.NewReader(body), eventstream.NewDecoder()
	for {
		m, err := d.Decode(r, nil)
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		var chunk struct{ Bytes []byte }
		if err = errors.Join(err, json.Unmarshal(m.Payload, &chunk)); err != nil {
			t.Fatal(err)
		}
		out.WriteString("data: " + string(chunk.Bytes) + "\n\n")
	}
}

func TestRecordingsOfInvokeModel(t *testing.T) { // M02 M06
	for _, r := range invoked(t) {
		t.Run(r.Name, func(t *testing.T) {
			p := serve(t, providertest.Answer(r.Response.Status, nil, string(r.Body)))
			var h providertest.Heard
			turn, err := p.Stream(t.Context(), &model.Request{Model: "m"}, h.Emit)
			check(t, r.Expected, turn, &h, err)
		})
	}
}

func TestRecordingsOfInvokeModelAtAnySplit(t *testing.T) {
	providertest.AtAnySplit(t, invoked(t), decoding())
}

func TestRecordingsOfInvokeModelCutOff(t *testing.T) {
	providertest.CutOff(t, invoked(t), decoding())
}

func TestRecordedAnswersOfInvokeModelAreRepeated(t *testing.T) { // M05 P08
	dialect().RepeatsAnswers(t, invoked(t))
}
