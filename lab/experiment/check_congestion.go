package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// KernelControls are the congestion controls of the guest's kernels, built in or loaded when it boots: the same in every generation (TestControls).
var KernelControls = []string{
	"bbr", "bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois", "lp", "nv", "reno", "scalable", "vegas", "veno", "westwood", "yeah",
}

// controlSetting is the sysctl of a namespace's default congestion control.
const controlSetting = "net.ipv4.tcp_congestion_control"

// checkCongestion reports congestion controls that the guest will not have.
func (c *checker) checkCongestion() {
	for _, name := range sortedKeys(c.spec.Apps) {
		c.isControl(join(join("apps", name), "congestion"), c.spec.Apps[name].Congestion)
	}
	c.checkSettings("sysctl", c.spec.Sysctl)
	for _, name := range sortedKeys(c.spec.Nodes) {
		c.checkSettings(join(join("nodes", name), "sysctl"), c.spec.Nodes[name].Sysctl)
	}
}

// checkSettings reports sysctls that cannot be written, and a default congestion control that the guest will not have.
func (c *checker) checkSettings(path string, settings map[string]any) {
	for _, key := range sortedKeys(settings) {
		text := ""
		switch settings[key].(type) {
		case nil:
		case map[string]any, []any:
			text = "must be one value; the name of a setting is one key, such as net.ipv4.tcp_sack, and several numbers are a string, such as \"4096 87380 6291456\""
		default:
			if !strings.ContainsAny(key, "./") {
				text = "is no name of a setting, such as net.ipv4.tcp_sack"
			} else if strings.ReplaceAll(key, "/", ".") == controlSetting {
				text = c.notControl(fmt.Sprint(settings[key]))
			}
		}
		if text != "" { // the key has dots itself
			c.problems.add(c.tree.find(append(strings.Split(path, "."), key)), join(path, key), "%s", text)
		}
	}
}

func (c *checker) isControl(path, name string) {
	if text := c.notControl(name); text != "" {
		c.add(path, "%s", text)
	}
}

// notControl says why the guest has no such congestion control; empty if it may have. Those of plait are there when a command has started it, and one that
// a command names may be loaded by it.
func (c *checker) notControl(name string) string {
	if name == "" || slices.Contains(KernelControls, name) || strings.HasPrefix(name, "plait") {
		return ""
	}
	for _, node := range c.spec.Nodes {
		if slices.ContainsFunc(node.Run, func(command string) bool { return strings.Contains(command, name) }) {
			return ""
		}
	}
	return fmt.Sprintf("the guest's kernel has no congestion control %s%s (it has %s; plait's own begin with plait, and another one must be loaded by a command of a node's run that names it)",
		name, suggest(name, KernelControls), strings.Join(KernelControls, ", "))
}
