package item_test

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
)

func TestPartsAsPlainText(t *testing.T) {
	text := func(s string) item.Part { return item.Part{Kind: item.Text, Text: s} }
	picture := item.Part{Kind: item.Image, MIMEType: "image/png", Data: "AAAAAA=="}
	for _, tt := range []struct {
		name  string
		parts []item.Part
		want  string
	}{
		{"nothing", nil, ""},
		{"one text", []item.Part{text("a")}, "a"},
		{"adjacent texts", []item.Part{text("a"), text("b"), {Kind: item.Refusal, Text: "c"}}, "abc"},
		{"an image between texts", []item.Part{text("a"), picture, text("b")}, "a\n[image; type: image/png; 4 bytes, not shown]\nb"},
		{"images", []item.Part{picture, {Kind: item.Image, Data: "AAAA"}}, "[image; type: image/png; 4 bytes, not shown]\n[image; 3 bytes, not shown]"},
		{"an empty text before an image", []item.Part{text(""), picture}, "\n[image; type: image/png; 4 bytes, not shown]"},
		{"an image by address", []item.Part{{Kind: item.Image, URL: "https://x/i.png"}}, "[image https://x/i.png]"},
		{"an image in its address", []item.Part{{Kind: item.Image, URL: "data:image/gif;base64,AAAA"}}, "[image; type: image/gif; 3 bytes, not shown]"},
		{"sound", []item.Part{{Kind: item.Audio, MIMEType: "audio/wav", Data: "AA=="}}, "[audio; type: audio/wav; 1 bytes, not shown]"},
		{"a file of the provider", []item.Part{{Kind: item.File, FileID: "file_1", Name: "a.pdf"}}, "[file; id: file_1; name: a.pdf]"},
		{"a resource with text", []item.Part{{Kind: item.Resource, URL: "file:///a", MIMEType: "text/plain", Text: "body"}, text("b")}, "[resource file:///a]\nbody\nb"},
		{"a resource with bytes", []item.Part{{Kind: item.Resource, URL: "file:///a", MIMEType: "application/pdf", Data: "AAAA"}}, "[resource file:///a; type: application/pdf; 3 bytes, not shown]"},
		{"a link", []item.Part{{Kind: item.Resource, URL: "http://x", Name: "n", Title: "t", MIMEType: "m", Description: "d"}}, "[resource http://x; name: n; title: t; type: m; description: d]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := item.PlainText(tt.parts); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestADescriptionHoldsNoBinaryData(t *testing.T) {
	data := strings.Repeat("QUJD", 1000)
	for _, p := range []item.Part{{Kind: item.Image, Data: data}, {Kind: item.Image, URL: "data:image/png;base64," + data}, {Kind: item.Resource, URL: "u", Data: data}} {
		if got := p.Describe(); strings.Contains(got, "QUJD") || !strings.Contains(got, "3000 bytes, not shown") {
			t.Errorf("%.200s", got)
		}
	}
}
