package client

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// TextError says that a text of a request is not UTF-8: an argument from a terminal, or the name of a file, in another
// character set.
type TextError struct{ text string }

func (e *TextError) Error() string {
	return fmt.Sprintf("%.60q is not UTF-8: use a terminal with UTF-8, and rename a file with such a name", e.text)
}

// Encode returns the bytes of encoding/json, but a *TextError for a text that is not UTF-8: encoding/json replaces its bytes by
// U+FFFD, which the api accepts. A json.RawMessage is sent unchanged, and the api names the invalid field.
func Encode(request any) ([]byte, error) {
	checkText := json.MarshalToFunc(func(_ *jsontext.Encoder, text string) error {
		if !utf8.ValidString(text) {
			return &TextError{text}
		}
		return errors.ErrUnsupported // the default encoding
	})
	body, err := json.Marshal(request, jsonv1.DefaultOptionsV1(), json.WithMarshalers(checkText))
	var invalid *TextError
	switch {
	case errors.As(err, &invalid):
		return nil, invalid
	case err != nil:
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return body, nil
}
