package storetest

import "email-gateway/shared/store/dispatch"

// EvenTakes takes at most limit rows from each of the lanes.
func EvenTakes(lanes []int64, limit int) []dispatch.LaneTake {
	takes := make([]dispatch.LaneTake, len(lanes))
	for i, id := range lanes {
		takes[i] = dispatch.LaneTake{LaneProbe: dispatch.LaneProbe{ID: id}, Limit: limit}
	}
	return takes
}
