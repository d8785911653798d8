// Package response has the parts of responses that several families of routes share: objects in JSON, headers of rate limits
// and locations, and deadlines for writing.
package response

// TypeCSV is the media type of CSV.
const TypeCSV = "text/csv"
