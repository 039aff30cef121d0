package bedrock

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// frames reads the messages of an AWS event stream as events: the name is the type of the
// event, and the data is its JSON. A message whose checksum is wrong is an error.
// https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html describes
// the framing.
type frames struct {
	src     *bufio.Reader
	decoder *eventstream.Decoder
	payload []byte // of the last message
}

func newFrames(src io.Reader) wire.Events {
	return &frames{src: bufio.NewReader(src), decoder: eventstream.NewDecoder()}
}

// failedEvent begins the name of an event that is an error; the rest is its type.
const failedEvent = "!"

// Next implements wire.Events.
func (f *frames) Next() (sse.Event, error) {
	source := &kept{src: f.src}
	m, err := f.decoder.Decode(source, f.payload)
	switch {
	case err == nil:
	case source.err != nil && !errors.Is(source.err, io.EOF): // of the network
		return sse.Event{}, source.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), source.err != nil:
		return sse.Event{}, io.EOF
	default:
		return sse.Event{}, wire.Broken("sent an event stream that is damaged", err)
	}
	f.payload = m.Payload
	switch header(m, ":message-type") {
	case "exception":
		return sse.Event{Name: []byte(failedEvent + header(m, ":exception-type")), Data: object(m.Payload)}, nil
	case "error": // of the framing itself, without a payload
		said := wire.AsJSON(map[string]string{"message": header(m, ":error-message")})
		return sse.Event{Name: []byte(failedEvent + header(m, ":error-code")), Data: said}, nil
	}
	return sse.Event{Name: []byte(header(m, ":event-type")), Data: m.Payload}, nil
}

// object returns the data of an exception, {} where it has none.
func object(payload []byte) []byte {
	if len(bytes.TrimSpace(payload)) == 0 {
		return []byte(`{}`)
	}
	return payload
}

// header returns a header of a message as text, "" if there is none.
func header(m eventstream.Message, name string) string {
	if v, ok := m.Headers.Get(name).(eventstream.StringValue); ok {
		return string(v)
	}
	return ""
}

// kept is a reader that keeps its error: the decoder does not tell an error of the
// network from a message that is damaged.
type kept struct {
	src io.Reader
	err error
}

func (k *kept) Read(p []byte) (int, error) {
	n, err := k.src.Read(p)
	if err != nil {
		k.err = err
	}
	return n, err
}
