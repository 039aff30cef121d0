package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"testing"
)

// testImages sends a picture beside the question.
func testImages(t *testing.T, s *site) { // P12
	r := s.newRig(t, sumScript)
	url := picture(t)
	sent := []object{
		{"type": "text", "text": sumQuestion},
		{"type": "image_url", "image_url": object{"url": url, "detail": "low"}},
	}
	ways := []struct {
		name, key string
		rounds    int
	}{{"in the loop", devKey, 3}, {"relayed", plainKey, 1}}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
				question := r.ask("gpt-test", "", stream)
				question.Key = way.key
				question.Request["messages"] = []object{{"role": "user", "content": sent}}
				answer(t, c, question)
				seen := r.upstream.take()
				wantEqual(t, "rounds at the upstream", way.rounds, len(seen))
				for _, request := range seen {
					wantEqual(t, "parts at the upstream", decodedAs[any](t, marshal(sent)), firstContent(t, request.Body))
					wantEqual(t, "copies of the data URL", 1, bytes.Count(request.Body, []byte(`"`+url+`"`)))
				}
			})
		})
	}
}

// picture is a PNG of about 50 kB that does not compress, as a data URL.
func picture(t *testing.T) string {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 128, 128))
	noise := uint32(1)
	for i := range 128 * 128 {
		noise = noise*1664525 + 1013904223
		img.Set(i%128, i/128, color.RGBA{uint8(noise >> 24), uint8(noise >> 16), uint8(noise >> 8), 255})
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes())
}

// firstContent is the content of a request's first message, decoded.
func firstContent(t *testing.T, body []byte) any {
	t.Helper()
	type request struct {
		Messages []struct{ Content any }
	}
	return decodedAs[request](t, body).Messages[0].Content
}

func decodedAs[T any](t *testing.T, data []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("decoding %.200s: %v", data, err)
	}
	return value
}
