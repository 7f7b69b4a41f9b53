package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plait.dev/plait/egress"
)

// keepEvery is how often what was found out about prefixes is written. A process that is killed loses no more.
const keepEvery = time.Minute

// stateDirectory outlives the boot where systemd gives one; else it is where plait keeps what outlives the process.
func stateDirectory(directory string) string {
	if d, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); d != "" { // the first of several
		return d
	}
	return directory
}

// memoryOf is the file of the plait with a control socket, under whose name it is, as what cleanup.go knows.
func memoryOf(control string) string {
	return filepath.Join(stateDirectory(filepath.Dir(control)), filepath.Base(control)+".egress-memory.json")
}

// memory is what the file holds. What clients get from several exits says nothing about others, and a comparison does not go on with other shares of the connections.
type memory struct {
	Exits    []string                      `json:"exits"`
	Holdouts map[egress.Strategy][]float64 `json:"holdouts"`
	Known    []egress.Known                `json:"known"`
}

// described says of each exit what the worth of having it depends on.
func described(all []egress.Exit) (out []string) {
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s: route target %s, locators %v, SIDs %v, cost %d", e.Name, e.RouteTarget, e.Locators, e.SIDs, e.Cost))
	}
	slices.Sort(out)
	return out
}

// remember begins with what a process before this one found out.
func (x *exits) remember() *egress.Worth {
	m, now := x.readMemory(), time.Now()
	worth := egress.NewWorth(m.Known, now)
	restart(worth, m.Holdouts, x.config.holdouts(), now)
	return worth
}

// readMemory reads the file. Without it plait measures anew.
func (x *exits) readMemory() (m memory) {
	text, err := os.ReadFile(x.memory)
	if errors.Is(err, fs.ErrNotExist) {
		return memory{}
	}
	if err == nil {
		if err = json.Unmarshal(text, &m); err != nil {
			err = fmt.Errorf("read %s: %w", x.memory, err)
		}
	}
	if err != nil {
		x.logf("what was measured of prefixes is lost, and is measured anew: %v", err)
		return memory{}
	}
	if !slices.Equal(m.Exits, described(x.config.Exits)) {
		x.logf("what was measured of prefixes was of other exits, and is measured anew")
		return memory{}
	}
	return m
}

// keep writes it, all or nothing.
func (x *exits) keep() {
	x.mu.Lock()
	known, holdouts, now := x.worth.Known(), x.holdouts, make([]egress.Exit, 0, len(x.config.Exits))
	for _, e := range x.config.Exits {
		now = append(now, x.terms[e.Name])
	}
	x.mu.Unlock()
	slices.SortFunc(known, egress.ByPrefix)
	if len(known) == 0 {
		return
	}
	text, err := json.Marshal(memory{described(now), holdouts, known})
	if err == nil {
		err = os.WriteFile(x.memory+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(x.memory+".new", x.memory)
	}
	if err != nil {
		x.logf("keep what was measured of prefixes: %v; it is tried again", err)
	}
}
