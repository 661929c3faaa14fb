package proxyagent

// serverState is what an agent knows of one proxy server that matters for the question which
// servers it looks for, and which it leaves. It changes by transitions alone.
type serverState int

const (
	// stateServing: the server takes new dials.
	stateServing serverState = iota
	// stateDraining: the server is about to stop, and waits until the agent has another one.
	stateDraining
	// stateLeaving: the server drains, and was told that the agent has another one.
	stateLeaving
	// stateHalfOpen: the control session has become a carrier, and no dial leads to the server
	// for the next one. The server can neither say that it drains nor ask for carriers.
	stateHalfOpen
	// stateHalfOpenDraining: the same of a server that said before that it drains.
	stateHalfOpenDraining
	// stateGone: the agent has forgotten the server. Open connections go on.
	stateGone

	serverStates = iota
)

func (s serverState) String() string {
	return [serverStates]string{"serving", "draining", "leaving", "half-open", "half-open, draining", "gone"}[s]
}

// serverEvent is what happens to a proxy server that an agent knows.
type serverEvent int

const (
	// eventDrains: the server says that it drains.
	eventDrains serverEvent = iota
	// eventRenewed: there is a control session in the place of one that has become a carrier.
	eventRenewed
	// eventMissed: dials for such a control session led to other servers only.
	eventMissed
	// eventEnded: the last control session has ended.
	eventEnded
	// eventOthersServe: the agent has another server, which serves.
	eventOthersServe
	// eventAlone: no server serves.
	eventAlone
	// eventSpare: nothing is open on the server, and as many others serve as there are servers.
	eventSpare

	serverEvents = iota
)

// transitions is the state after each event, by the state before it. A server that the agent
// cannot hear is kept as long as connections are open, since it knows the agent by them; if it
// drains it ends them soon, and another server is reason enough to leave it.
var transitions = [serverStates][serverEvents]serverState{
	stateServing: {
		eventDrains: stateDraining, eventRenewed: stateServing, eventMissed: stateHalfOpen, eventEnded: stateGone,
		eventOthersServe: stateServing, eventAlone: stateServing, eventSpare: stateServing,
	},
	stateDraining: {
		eventDrains: stateDraining, eventRenewed: stateDraining, eventMissed: stateHalfOpenDraining, eventEnded: stateGone,
		eventOthersServe: stateLeaving, eventAlone: stateDraining, eventSpare: stateDraining,
	},
	stateLeaving: {
		eventDrains: stateLeaving, eventRenewed: stateLeaving, eventMissed: stateGone, eventEnded: stateGone,
		eventOthersServe: stateLeaving, eventAlone: stateDraining, eventSpare: stateLeaving,
	},
	stateHalfOpen: {
		eventDrains: stateHalfOpenDraining, eventRenewed: stateServing, eventMissed: stateHalfOpen, eventEnded: stateGone,
		eventOthersServe: stateHalfOpen, eventAlone: stateHalfOpen, eventSpare: stateGone,
	},
	stateHalfOpenDraining: {
		eventDrains: stateHalfOpenDraining, eventRenewed: stateDraining, eventMissed: stateHalfOpenDraining, eventEnded: stateGone,
		eventOthersServe: stateGone, eventAlone: stateHalfOpenDraining, eventSpare: stateGone,
	},
	stateGone: {
		eventDrains: stateGone, eventRenewed: stateGone, eventMissed: stateGone, eventEnded: stateGone,
		eventOthersServe: stateGone, eventAlone: stateGone, eventSpare: stateGone,
	},
}

// drains reports whether the server has said that it drains.
func (s serverState) drains() bool {
	return s == stateDraining || s == stateLeaving || s == stateHalfOpenDraining
}

// isHalfOpen reports whether the server can tell the agent nothing.
func (s serverState) isHalfOpen() bool { return s == stateHalfOpen || s == stateHalfOpenDraining }
