package window

import "regexp"

// takesImages matches the names of models of OpenAI, Anthropic, Gemini and Amazon that take images, also where other
// providers have them under a name with a vendor or a region before it.
var takesImages = regexp.MustCompile(`(?:^|[./])(?:` +
	`claude-(?:3-(?:5-sonnet|7|haiku|opus|sonnet)|opus|sonnet|haiku|fable)|` +
	`gemini-(?:[2-9]|\d\d)|` +
	`gpt-(?:4o|4\.1|4-turbo|[5-9])|` +
	`o[13](?:-pro|-\d{4})|o[13]$|o4-mini|` +
	`nova-(?:lite|pro|premier)` +
	`)`)

// otherMedia matches the names of their relatives that work with sound, make embeddings or see nothing.
var otherMedia = regexp.MustCompile(`audio|realtime|transcribe|-tts|embedding|sonic|turbo-preview`)

// TakesImages reports whether a model is known to take images. model is the provider's name for it.
func TakesImages(model string) bool {
	return takesImages.MatchString(model) && !otherMedia.MatchString(model)
}
