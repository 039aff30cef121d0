package item

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// NewMessage returns a message of the given role with these parts, such as a question and an image.
func NewMessage(role Role, parts ...Part) Item { return Item{Kind: Message, Role: role, Parts: parts} }

// TextPart returns a text.
func TextPart(text string) Part { return Part{Kind: Text, Text: text} }

// ImageData returns an image, such as one of the type "image/png".
func ImageData(mimeType string, data []byte) Part {
	return Part{Kind: Image, MIMEType: mimeType, Data: base64.StdEncoding.EncodeToString(data)}
}

// ImageURL returns an image that the provider fetches from a URL.
func ImageURL(url string) Part { return Part{Kind: Image, URL: url} }

// FileData returns a file with its name, such as one of the type "application/pdf".
func FileData(name, mimeType string, data []byte) Part {
	return Part{Kind: File, Name: name, MIMEType: mimeType, Data: base64.StdEncoding.EncodeToString(data)}
}

// Validate returns what makes the item impossible to send to any model, such as an unknown kind; nil = nothing. A model may refuse
// more, such as images.
func (i Item) Validate() error {
	switch i.Kind {
	case Message:
		switch i.Role {
		case System, Developer, User, Assistant:
		default:
			return fmt.Errorf("a message has the role %q; use %s, %s, %s or %s", i.Role, System, Developer, User, Assistant)
		}
	case ToolCall:
		if i.Name == "" {
			return errors.New("a tool call has no Name")
		}
	case Other:
		if i.Native.JSON == nil {
			return errors.New("an item of the kind other has no Native")
		}
	case Reasoning, ToolResult:
	default:
		return fmt.Errorf("an item has the kind %q; use a function such as NewText, or one of the constants", i.Kind)
	}
	for n, p := range i.Parts {
		if err := p.validate(); err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
	}
	return nil
}

func (p Part) validate() error {
	switch p.Kind {
	case Text, Refusal, Resource:
		return nil
	case Image, Audio, File:
	default:
		return fmt.Errorf("the kind is %q; use a function such as ImageData, or one of the constants", p.Kind)
	}
	if p.Data == "" && p.URL == "" && p.FileID == "" && p.Text == "" {
		return fmt.Errorf("the %s has no Data, URL or FileID", p.Kind)
	}
	if _, err := base64.StdEncoding.DecodeString(p.Data); err != nil {
		return fmt.Errorf("the Data of the %s is not base64; use a function such as ImageData", p.Kind)
	}
	return nil
}
