package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// decode reads one JSON value. Numbers stay as written. Unlike encoding/json it refuses names that
// appear twice: which of them is meant is not known. values is how many it consists of.
func decode(raw []byte) (value any, values int, err error) {
	d := decoder{json.NewDecoder(bytes.NewReader(raw)), 0}
	d.UseNumber()
	if value, err = d.value(0); err != nil {
		return nil, d.values, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, d.values, errors.New("must be one JSON value")
	}
	return value, d.values, nil
}

// decoder counts the values that it reads.
type decoder struct {
	*json.Decoder
	values int
}

func (d *decoder) value(depth int) (any, error) {
	if d.values++; d.values > MaxValues {
		return nil, fmt.Errorf("must have at most %d values", MaxValues)
	}
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	delim, composite := token.(json.Delim)
	if !composite {
		return token, nil
	}
	if depth >= maxDataDepth {
		return nil, fmt.Errorf("must be nested at most %d levels deep", maxDataDepth)
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			element, err := d.value(depth + 1)
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
		if object[name], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return object, err
}
