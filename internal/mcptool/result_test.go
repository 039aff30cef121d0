package mcptool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

func parts(p ...item.Part) tool.Result { return tool.Result{Parts: append([]item.Part{}, p...)} }

func TestContentBecomesParts(t *testing.T) {
	cases := []struct {
		name, raw string
		want      tool.Result
	}{
		{"text", `{"content":[{"type":"text","text":"a"},{"type":"text","text":""}]}`, parts(text("a"), text(""))},
		{"one piece without its list", `{"content":{"type":"text","text":"a"}}`, parts(text("a"))},
		{"an image", `{"content":[{"type":"image","data":"cG5n","mimeType":"image/png"}]}`, parts(item.Part{Kind: item.Image, Data: "cG5n", MIMEType: "image/png"})},
		{"a sound", `{"content":[{"type":"audio","data":"cG5n","mimeType":"audio/wav"}]}`, parts(item.Part{Kind: item.Audio, Data: "cG5n", MIMEType: "audio/wav"})},
		{"a link is named and not fetched", `{"content":[{"type":"resource_link","uri":"http://169.254.169.254/","name":"n","title":"t","mimeType":"m","description":"d"}]}`,
			parts(item.Part{Kind: item.Resource, URL: "http://169.254.169.254/", Name: "n", Title: "t", MIMEType: "m", Description: "d"})},
		{"an embedded text", `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/plain","text":"body"}}]}`,
			parts(item.Part{Kind: item.Resource, URL: "file:///a", MIMEType: "text/plain", Text: "body"})},
		{"an embedded blob", `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"image/png","blob":"cG5n"}}]}`,
			parts(item.Part{Kind: item.Resource, URL: "file:///a", MIMEType: "image/png", Data: "cG5n"})},
		{"a blob that is text",
			`{"content":[{"type":"resource","resource":{"mimeType":"text/plain; charset=utf-8","blob":"Tk9OQ0Ugw6Q="}}]}`,
			parts(item.Part{Kind: item.Resource, MIMEType: "text/plain; charset=utf-8", Text: "NONCE ä"})},
		{"a blob that is JSON", `{"content":[{"type":"resource","resource":{"mimeType":"application/ld+json","blob":"e30="}}]}`,
			parts(item.Part{Kind: item.Resource, MIMEType: "application/ld+json", Text: "{}"})},
		{"a blob that is not text", `{"content":[{"type":"resource","resource":{"uri":"u","mimeType":"text/plain","blob":"/wA="}}]}`,
			parts(item.Part{Kind: item.Resource, URL: "u", MIMEType: "text/plain", Data: "/wA="})},
		{"an unknown type", `{"content":[{"type":"hologram"},7]}`, parts(text(`[content of unknown type "hologram" left out]`), text("[unreadable content left out]"))},
		{"structured only", `{"structuredContent":{"n":12345678901234567890}}`, tool.Result{Parts: []item.Part{}, Structured: json.RawMessage(`{"n":12345678901234567890}`)}},
		{"structured beside text", `{"content":[{"type":"text","text":"a"}],"structuredContent":[1]}`, tool.Result{Parts: []item.Part{text("a")}, Structured: json.RawMessage(`[1]`)}},
		{"structured that is null", `{"content":[{"type":"text","text":"a"}],"structuredContent":null}`, parts(text("a"))},
		{"an error that is structured only", `{"isError":true,"structuredContent":{"code":1}}`, tool.Result{Parts: []item.Part{}, IsError: true, Structured: json.RawMessage(`{"code":1}`)}},
		{"an error that says nothing", `{"isError":true}`, tool.Error(`tool "t" of server "s" failed without an error message`)},
		{"nothing", `{}`, parts()}, {"null", `null`, parts()}, {"null content", `{"content":null}`, parts()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := decodeResult("t", "s", json.RawMessage(c.raw))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMillionPiecesOfContentAreCut(t *testing.T) {
	raw := `{"content":[` + strings.Repeat(`{"type":"text","text":"a"},`, maxParts+41) + `{"type":"text","text":"a"}]}`
	got := decodeResult("t", "s", json.RawMessage(raw))
	if len(got.Parts) != maxParts+1 || got.Parts[maxParts].Text != "[42 more pieces of content left out]" {
		t.Error(len(got.Parts), got.Parts[len(got.Parts)-1])
	}
}

// P06
func TestAResultHasSoManyParts(t *testing.T) {
	for _, n := range []int{maxParts, maxParts + 1} {
		raw := `{"content":[` + strings.Repeat(`{"type":"text","text":"a"},`, n-1) + `{"type":"text","text":"a"}]}`
		parts := decodeResult("t", "s", []byte(raw)).Parts
		last := parts[len(parts)-1].Text
		if n == maxParts && (len(parts) != n || last != "a") || n > maxParts && (len(parts) != maxParts+1 || last != "[1 more pieces of content left out]") {
			t.Errorf("%d pieces: %d parts, the last %q", n, len(parts), last)
		}
	}
}
