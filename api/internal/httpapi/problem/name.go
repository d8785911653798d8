package problem

// PrintableName truncates a name chosen by the client.
func PrintableName(name string) string {
	const longest = 128
	if len(name) > longest {
		name = name[:longest]
	}
	return name
}
