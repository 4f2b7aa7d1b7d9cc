/* SPDX-License-Identifier: MIT */
/* Streams of several devices, as streams like any other. */
#ifndef ASH_LANES_H
#define ASH_LANES_H

#include "device.h"

/* What a stream is for: the work of one device, or copies from one to another. */
typedef struct ash_lane {
    uint32_t from, to; /* devices by number; the same: its work */
    uint64_t most;     /* bytes that one copy has */
    uint32_t events;   /* that it records */
} ash_lane;

enum { ASH_LANES_MOST = 64 }; /* streams */

/* Makes options->streams streams, 2 to ASH_LANES_MOST, for devices that are borrowed: `lanes` says of each
 * what it is for. Fills say on which device (ash_fill.device); addresses are those of the lane's devices.
 * `captures`: commands are captured, device by device; otherwise they are issued, and `instantiate` is
 * ASH_ERROR_UNSUPPORTED. A capture counts the steps that the devices have captured; copies from one to
 * another and fills stand between these. */
ash_status ash_lanes__create(ash_device *const *devices, const ash_lane *lanes, bool captures,
                             const ash_streams_options *options, ash_streams **out, ash_diag *diag);
/* What stops the kernels of a stream: as ash_streams.stop, where its device finds it. */
ash_address ash_lanes__stop(const ash_streams *streams, uint32_t stream);
/* Adds, by the devices' numbers, what is held for such a round of commands: ash_stream_class.memory. */
ash_status ash_lanes__memory(const ash_streams *streams, const ash_command *commands, size_t count,
                             ash_streams_memory *out, ash_diag *diag);
/* Whether the copies of a stream go from device to device, and not over the host. */
bool ash_lanes__is_direct(const ash_streams *streams, uint32_t stream);

#endif
