package htmlcheck

// CheckThoroughly is Check with every reading made and no shortcut taken.
func CheckThoroughly(html string) error { return check(html, true) }

// Ordinary reports whether the shortcut for ordinary markup answers for html.
func Ordinary(html string) bool {
	ok, deep := ordinary(html)
	return ok && !deep
}

// Occupy takes a slot until the returned function is called.
func (c *Checker) Occupy() (release func()) {
	c.slots <- struct{}{}
	return func() { <-c.slots }
}
