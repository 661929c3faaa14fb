//go:build race

package agents

// scale is by how much the crowds of these tests are smaller under the race
// detector, which costs ten times the processor and the memory.
const scale = 10
