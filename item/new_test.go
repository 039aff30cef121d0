package item_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
)

func TestWhichItemsAreValid(t *testing.T) {
	for _, it := range []item.Item{
		item.NewText(item.Developer, ""), item.NewCall("", "f", "{"), item.NewResult("c", "", true), {Kind: item.Reasoning},
		{Kind: item.Other, Native: item.Native{JSON: json.RawMessage(`{}`)}},
		item.NewMessage(item.User, item.TextPart("What is it?"), item.ImageData("image/png", []byte("PNG")), item.ImageURL("https://example.com/a.png"),
			item.FileData("a.pdf", "application/pdf", []byte("%PDF"))),
		item.NewMessage(item.Assistant, item.Part{Kind: item.Refusal, Text: "No."}),
	} {
		if err := it.Validate(); err != nil {
			t.Errorf("%+v: %v", it, err)
		}
	}
	for want, it := range map[string]item.Item{
		`kind ""`:         {},
		`kind "mesage"`:   {Kind: "mesage"},
		`role "robot"`:    item.NewText("robot", "x"),
		"no Name":         {Kind: item.ToolCall},
		"no Native":       {Kind: item.Other},
		`part 1: the kin`: item.NewMessage(item.User, item.TextPart("x"), item.Part{Kind: "img"}),
		"no Data":         item.NewMessage(item.User, item.Part{Kind: item.Image}),
		"not base64":      {Kind: item.ToolResult, Parts: []item.Part{{Kind: item.Image, Data: "%PNG"}}},
	} {
		if err := it.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", it, err, want)
		}
	}
}
