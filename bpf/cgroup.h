/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is said of a cgroup holds for those below, too. */
#ifndef PLAIT_CGROUP_H
#define PLAIT_CGROUP_H

#include "kernel.h"

/* Levels of cgroups looked at, from the socket's own up. */
#define PLAIT_CGROUP_LEVELS 32

static __always_inline struct cgroup *parent_of(struct cgroup *c)
{
	struct cgroup_subsys_state *parent = c->self.parent;

	return parent ? parent->cgroup : 0;
}

/* What a map of numbers by cgroup id says of the socket's cgroup, or of the nearest above; 0: nothing. The socket's cgroup is that of the process
 * that made it, or made its listener. */
static __always_inline __u32 nearest(void *map, struct sock *sk)
{
	struct cgroup *c = sk->sk_cgrp_data.cgroup;
	__u32 *found;

	for (int i = 0; i < PLAIT_CGROUP_LEVELS && c; i++) {
		__u64 id = c->kn->id;

		found = bpf_map_lookup_elem(map, &id);
		if (found)
			return *found;
		c = parent_of(c);
	}
	return 0;
}

#endif
