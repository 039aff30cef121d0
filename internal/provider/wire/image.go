package wire

import (
	"encoding/base64"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// TakesImage reports whether a part of a tool result is a PNG, JPEG, GIF or WebP image
// of at most maxData bytes of base64, with at most maxSide pixels on each side.
func TakesImage(p item.Part, maxData, maxSide int) bool {
	if p.Data == "" || len(p.Data) > maxData {
		return false
	}
	r := base64.NewDecoder(base64.StdEncoding, strings.NewReader(p.Data))
	var decode func(io.Reader) (image.Config, error)
	switch p.MIMEType {
	case "image/png":
		decode = png.DecodeConfig
	case "image/jpeg":
		decode = jpeg.DecodeConfig
	case "image/gif":
		decode = gif.DecodeConfig
	case "image/webp":
		return true // whose size is not read here
	default:
		return false
	}
	c, err := decode(r) // fails for rare forms, which are left to the provider
	return err != nil || c.Width <= maxSide && c.Height <= maxSide
}
