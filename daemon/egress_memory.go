package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// remember reads what a process before this one found out. Without it plait measures anew.
func (x *exits) remember() []egress.Known {
	text, err := os.ReadFile(x.memory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var known []egress.Known
	if err == nil {
		if err = json.Unmarshal(text, &known); err != nil {
			err = fmt.Errorf("read %s: %w", x.memory, err)
		}
	}
	if err != nil {
		x.logf("what was measured of prefixes is lost, and is measured anew: %v", err)
		return nil
	}
	return known
}

// keep writes it, all or nothing.
func (x *exits) keep() {
	x.mu.Lock()
	known := x.worth.Known()
	x.mu.Unlock()
	slices.SortFunc(known, egress.ByPrefix)
	if len(known) == 0 {
		return
	}
	text, err := json.Marshal(known)
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
