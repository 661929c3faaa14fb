package agentapi

// Up to allServers proxy servers an agent connects to all of them, and to fewServers of
// more.
const allServers, fewServers = 3, 2

// WantedServers is to how many of n proxy servers an agent connects, if these reach agents
// through each other: to perAgent, if it is told, and never to more than there are.
func WantedServers(n, perAgent int) int {
	switch {
	case perAgent > 0:
		return min(n, perAgent)
	case n > allServers:
		return fewServers
	}
	return n
}
