package anthropic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// drawn returns an image of the given size as a part.
func drawn(t *testing.T, format string, width, height int) item.Part {
	t.Helper()
	picture := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	var err error
	switch format {
	case "image/png":
		err = png.Encode(&b, picture)
	case "image/jpeg":
		err = jpeg.Encode(&b, picture, nil)
	case "image/gif":
		err = gif.Encode(&b, picture, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return item.Part{Kind: item.Image, MIMEType: format, Data: base64.StdEncoding.EncodeToString(b.Bytes())}
}

// resultOf returns the content of a tool result with the parts, in a request with
// n other images.
func resultOf(t *testing.T, n int, isError bool, parts ...item.Part) string {
	t.Helper()
	user := item.Item{Kind: item.Message, Role: item.User, Parts: slices.Repeat([]item.Part{{Kind: item.Image, URL: "https://x/i.png"}}, n)}
	call := item.NewCall("c", "f", "{}")
	call.Turn = 1
	out := New(wire.Endpoint{}, Options{}).translate(&model.Request{Items: []item.Item{user, call, {Kind: item.ToolResult, CallID: "c", Parts: parts, IsError: isError}}}).Messages
	var b struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
		IsError bool            `json:"is_error"`
	}
	last := out[len(out)-1].Content
	if err := json.Unmarshal(wire.AsJSON(last[len(last)-1]), &b); err != nil || b.Type != "tool_result" || b.IsError != isError {
		t.Fatalf("%s: %v", last, err)
	}
	return string(b.Content)
}

func TestWhatAToolReturns(t *testing.T) { // M05
	words := item.Part{Kind: item.Text, Text: "a"}
	small := drawn(t, "image/png", 1, 1)
	shown := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + small.Data + `"}}`
	named := small
	named.Kind, named.URL = item.Resource, "file:///i.png"
	for _, tt := range []struct {
		name  string
		parts []item.Part
		want  string
	}{
		{"text and an image", []item.Part{words, small, words}, `{"type":"text","text":"a"},` + shown + `,{"type":"text","text":"a"}`},
		{"an image in a URL", []item.Part{{Kind: item.Image, URL: "data:image/png;base64," + small.Data}}, shown},
		{"an image by address", []item.Part{{Kind: item.Image, URL: "https://x/i.png"}}, `{"type":"image","source":{"type":"url","url":"https://x/i.png"}}`},
		{"an image of a resource is named", []item.Part{named}, `{"type":"text","text":"[resource file:///i.png; type: image/png]"},` + shown},
		{"an image of another type", []item.Part{{Kind: item.Image, MIMEType: "image/svg+xml", Data: "PHN2Zy8+"}}, `{"type":"text","text":"[image; type: image/svg+xml; 6 bytes, not shown]"}`},
		{"sound", []item.Part{{Kind: item.Audio, MIMEType: "audio/wav", Data: "AAAA"}}, `{"type":"text","text":"[audio; type: audio/wav; 3 bytes, not shown]"}`},
		{"a PDF file", []item.Part{{Kind: item.Resource, URL: "file:///a.pdf", MIMEType: "application/pdf", Data: "JVBERi0="}}, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="},"title":"file:///a.pdf"}`},
		{"a resource with text", []item.Part{{Kind: item.Resource, URL: "file:///a", Name: "a.md", MIMEType: "text/markdown", Text: "body"}}, `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"body"},"title":"a.md"}`},
		{"a resource whose text is empty", []item.Part{{Kind: item.Resource, URL: "file:///a", Text: " "}}, `{"type":"text","text":"[resource file:///a]\n "}`},
		{"a link", []item.Part{{Kind: item.Resource, URL: "http://x", Name: "n"}}, `{"type":"text","text":"[resource http://x; name: n]"}`},
		{"an empty text", []item.Part{{Kind: item.Text}, words}, `{"type":"text","text":"a"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := resultOf(t, 0, false, tt.parts...), "["+tt.want+"]"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	if got := resultOf(t, 0, true, words, small); strings.Contains(got, `"image"`) || !strings.HasPrefix(got, `[{"type":"text","text":"a\n[image; type: image/png; `) {
		t.Errorf("an error: %s", got)
	}
	long := item.Part{Kind: item.Resource, URL: strings.Repeat("é", maxTitle+1), Text: "body"}
	if got, want := resultOf(t, 0, false, long), strings.Repeat("é", maxTitle-1)+`…"`; !strings.Contains(got, want) {
		t.Errorf("a long title: %s", got)
	}
}

// An image that the provider refuses would end the conversation.
func TestAnImageBeyondTheLimitsIsNotSent(t *testing.T) { // P06
	for _, tt := range []struct {
		name   string
		part   item.Part
		others int // images of the request
		sent   bool
	}{
		{"as wide as may be", drawn(t, "image/png", maxSide, 1), 0, true},
		{"too wide", drawn(t, "image/png", maxSide+1, 1), 0, false},
		{"too high", drawn(t, "image/gif", 1, maxSide+1), 0, false},
		{"a JPEG that is too high", drawn(t, "image/jpeg", 1, maxSide+1), 0, false},
		{"high, among few", drawn(t, "image/jpeg", 1, maxSideOfMany+1), manyImages - 1, true},
		{"high, among many", drawn(t, "image/jpeg", 1, maxSideOfMany+1), manyImages, false},
		{"not too high, among many", drawn(t, "image/jpeg", 1, maxSideOfMany), manyImages, true},
		{"as large as may be", item.Part{Kind: item.Image, MIMEType: "image/webp", Data: strings.Repeat("A", maxImageData)}, 0, true},
		{"too large", item.Part{Kind: item.Image, MIMEType: "image/webp", Data: strings.Repeat("A", maxImageData+4)}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := resultOf(t, tt.others, false, tt.part)
			if sent := strings.Contains(got, `"type":"image"`); sent != tt.sent || sent == strings.Contains(got, "not shown") {
				t.Errorf("got %.200s", got)
			}
		})
	}
}

// A request with more than the API takes would end the conversation: the latest
// content is sent.
func TestTheLatestImagesOfARequestAreSent(t *testing.T) { // P06
	results := func(n int, p item.Part) (items []item.Item) {
		for range n {
			call := item.NewCall("c", "f", "{}")
			call.Turn = len(items) + 1
			items = append(items, call, item.Item{Kind: item.ToolResult, CallID: "c", Parts: []item.Part{p}})
		}
		return items
	}
	small := drawn(t, "image/png", 1, 1)
	large := item.Part{Kind: item.Resource, MIMEType: "application/pdf", Data: strings.Repeat("A", maxImageData)}
	const fit = maxRequestData / maxImageData
	for _, tt := range []struct {
		name  string
		items []item.Item
		first int // item that is sent with its content
	}{
		{"as many as may be", results(maxImages, small), 0},
		{"too many", results(maxImages+2, small), 2 * 2},
		{"as large as may be", results(fit, large), 0},
		{"too large", results(fit+3, large), 2 * 3},
	} {
		limits := wire.BinaryLimits{Data: maxRequestData, Images: maxImages}
		if got := limits.FirstShown(tt.items); got != tt.first {
			t.Errorf("%s: the first is item %d, want %d", tt.name, got, tt.first)
		}
	}
	sent := 0
	for i, m := range New(wire.Endpoint{}, Options{}).translate(&model.Request{Items: results(maxImages+2, small)}).Messages {
		body := string(wire.AsJSON(m))
		if strings.Contains(body, `"type":"image"`) {
			sent++
		} else if m.Role == "user" && i > 0 && (sent > 0 || !strings.Contains(body, "not shown")) {
			t.Errorf("message %d: %.200s", i, body)
		}
	}
	if sent != maxImages {
		t.Errorf("%d images are sent, want %d", sent, maxImages)
	}
}
