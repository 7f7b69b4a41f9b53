// Package stripe carries one stream of bytes over all links two hosts have: Wi-Fi, LTE and Ethernet at once, several uplinks of a
// server, whatever there is. It runs in user space, without rights, without changes to the kernel, and without help from the
// network.
//
// [Dial] and [Listen] give connections that implement [net.Conn]. Below, there is one TLS 1.3 connection over TCP per path, or one of another [Carrier], between a
// link of this host and one of the peer. Each path that has room takes the next chunk of 16 KB, so a path carries as much as it
// can and nobody has to know how much that is. Chunks of a path that falls silent, fails or is late go over another one, too. Links
// come and go: a new one is used as soon as it has an address, one that vanishes loses nothing.
//
// Both ends prove who they are with keys ([NewKey]); there is no mode without encryption. A peer that has a key can end the
// connection, but neither crash nor exhaust this process.
//
// The package follows semantic versioning, with plait's version: before 1.0 minor releases may change it. See docs/stripe/developers.md.
//
// Tests: go test ./stripe/... ; those with real links, as root: PLAIT_TEST=netns go test ./stripe/...
package stripe
