package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// decode reads one JSON value. Numbers stay as written. Unlike encoding/json it refuses names that
// appear twice: which of them is meant is not known.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	value, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON value")
	}
	return value, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	delim, composite := token.(json.Delim)
	if !composite {
		return token, nil
	}
	if depth >= maxDataDepth {
		return nil, fmt.Errorf("must be nested at most %d deep", maxDataDepth)
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			element, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err = d.Token()
		return list, err
	}
	object := make(map[string]any)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		name, _ := key.(string)
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("has the name %q twice in one object", name)
		}
		if object[name], err = decodeValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return object, err
}
