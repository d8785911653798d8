package strictjson

// Or returns the value of an optional field, or other if the field is missing.
func Or[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}
